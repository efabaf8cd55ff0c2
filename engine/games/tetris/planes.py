"""The planes of an observation of Tetris. Imports nothing heavy, because the command line uses it."""

FILLED, REACHED, PIECE, MASKS, NEXT = range(5)
PLANES = 4
"""Without `NEXT`, which is shown with the option only."""
