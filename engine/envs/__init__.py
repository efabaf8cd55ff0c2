"""Environments: the batched emulator protocol, its consoles, and the games as vector environments."""
