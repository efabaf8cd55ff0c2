"""Helpers that several test modules share, such as driving the real program."""
