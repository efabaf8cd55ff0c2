"""The planes of an observation of Snake. Imports nothing heavy, because the command line uses it."""

PLANES = 5
BODY, HEAD, TAIL, FRUIT, ORDER = range(PLANES)
