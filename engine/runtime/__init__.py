"""Utilities for every process that know nothing of runs: threads, compiler, stopwatch, trace, safe text and files."""
