"""What every process uses and that knows nothing of runs: threads, compiler, stopwatch, trace, safe text and files."""
