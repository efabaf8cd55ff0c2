"""Utilities for every process that know nothing of runs: processes, threads, devices, stopwatch, text, files."""
