"""The compiler of the functions that must be fast: the console, the games' steps, the replay."""
