"""References for the native console: nes-py, and a second implementation of the 6502."""
