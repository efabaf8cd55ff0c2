"""The keys of a person's own game in `mario-tui play --human`: joypad buttons, and what they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.config import joypad

_MOVES = {
    "left": joypad.LEFT, "right": joypad.RIGHT, "up": joypad.UP, "down": joypad.DOWN,
    "a": joypad.LEFT, "d": joypad.RIGHT, "w": joypad.UP, "s": joypad.DOWN,
}  # fmt: skip


@dataclass(frozen=True)
class PersonKeys:
    """The keys of a game. `buttons`: Textual's names of keys and their joypad bits. `help`: what groups of keys do."""

    buttons: Mapping[str, int]
    help: Mapping[str, str]

    def line(self) -> str:
        """The help in one line."""
        return "   ".join(f"{keys}: {action}" for keys, action in self.help.items())


PERSON_KEYS = {
    "mario": PersonKeys(
        {
            **_MOVES, "z": joypad.B, "x": joypad.A, "o": joypad.B, "p": joypad.A, "enter": joypad.START,
            "tab": joypad.SELECT,
        },
        {"arrows or WASD": "move", "x or p": "jump (A)", "z or o": "run, fire (B)", "enter": "start"},
    ),
    "snake": PersonKeys(_MOVES, {"arrows or WASD": "steer"}),
    "tetris": PersonKeys(  # the buttons of `engine.commands.play_tetris`
        {**_MOVES, "x": joypad.A, "z": joypad.B, "space": joypad.START, "c": joypad.SELECT},
        {"arrows or WASD": "move", "up or x": "turn", "z": "turn back", "space": "drop", "c": "hold"},
    ),
}  # fmt: skip
