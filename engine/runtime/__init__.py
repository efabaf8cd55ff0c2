"""Utilities for every process that know nothing of runs: threads, stopwatch, trace, safe text and files."""
