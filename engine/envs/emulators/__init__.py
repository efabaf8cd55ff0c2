"""Batched consoles behind one protocol: the compiled NES, and nes-py."""
