"""Charts: curves, axes, and comparisons of runs."""
