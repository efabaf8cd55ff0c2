"""The planes of an observation of Snake. Imports nothing heavy, because the command line uses it."""

BODY, HEAD, TAIL, FRUIT, ORDER = range(5)
PLANES = 5
