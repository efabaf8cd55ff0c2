"""Finds what limits a run's speed, and options that make it faster: what is behind `mario-tui profile`."""
