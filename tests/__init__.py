"""Tests of mario-tui; `tests.support.program` drives the real program."""
