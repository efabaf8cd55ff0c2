"""Buttons and action sets of Super Mario Bros. Imports nothing heavy: the command line checks its options here."""

from __future__ import annotations

from engine.errors import UserError

# nes-py's bit order of the joypad
RIGHT, LEFT, DOWN, UP, START, SELECT, B, A = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01

_BUTTONS = {"noop": 0, "right": RIGHT, "left": LEFT, "down": DOWN, "up": UP, "A": A, "B": B}

# The sets of gym-super-mario-bros 7.4, in its order.
_RIGHT_ONLY = ("noop", "right", "right+A", "right+B", "right+A+B")
_SIMPLE = (*_RIGHT_ONLY, "A", "left")
_COMPLEX = (*_SIMPLE, "left+A", "left+B", "left+A+B", "down", "up")
ACTION_SETS = {"right-only": _RIGHT_ONLY, "simple": _SIMPLE, "complex": _COMPLEX}


def action_names(actions: str) -> tuple[str, ...]:
    """Names of the actions of a set, or of a list of one's own."""
    return ACTION_SETS.get(actions) or tuple(name.strip() for name in actions.split(","))


def action_buttons(actions: str) -> tuple[int, ...]:
    """Joypad bytes of the actions. Raises `UserError` naming the combination that there is not."""
    held = []
    for name in action_names(actions):
        byte = 0
        for button in name.split("+"):
            if button not in _BUTTONS:
                accepted = f"{', '.join(ACTION_SETS)}, or a list like noop,right,right+A of {', '.join(_BUTTONS)}"
                raise UserError(f"{name!r} is not accepted; accepted: {accepted}")
            byte |= _BUTTONS[button]
        held.append(byte)
    return tuple(held)
