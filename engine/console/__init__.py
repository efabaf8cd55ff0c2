"""Batched NES consoles, and the compiler that makes them fast: a library of its own."""
