"""Drives the real program, and what several test modules share."""
