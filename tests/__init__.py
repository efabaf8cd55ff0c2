"""Tests of mario-tui; `tests.support` drives the real program."""
