"""Buttons of a joypad, which also stand for the keys of a person. Imports nothing heavy: the terminal uses them."""

# Bits of the joypad byte, in the order of nes-py.
RIGHT, LEFT, DOWN, UP, START, SELECT, B, A = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01

MOVE_KEYS = {
    "left": LEFT, "right": RIGHT, "up": UP, "down": DOWN,
    "a": LEFT, "d": RIGHT, "w": UP, "s": DOWN,
}  # fmt: skip
"""Keys of a keyboard, by Textual's names, that a person moves with."""
