"""Environments: a batched emulator protocol, the consoles behind it, and the games as vector environments."""
