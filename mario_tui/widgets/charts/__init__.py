"""Charts: curves, their axes, and comparisons of runs."""
