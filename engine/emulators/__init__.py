"""Batched consoles with a common protocol: the native (compiled) NES, and nes-py."""
