"""The actions, frames and stages of Super Mario Bros. Imports nothing heavy, because the command line uses it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config.capabilities import DOWN, LEFT, RIGHT, UP, A, B
from engine.errors import UserError

STACK = 4
"""Frames per observation (Mnih et al. 2015)."""
HOLD = 8
"""The largest number of environment steps for which a random action is held. Held buttons explore a platform game
better than single random presses: a full jump needs A for half a second."""
_BUTTONS = {"noop": 0, "right": RIGHT, "left": LEFT, "down": DOWN, "up": UP, "A": A, "B": B}

# The action sets of gym-super-mario-bros 7.4, in the same order.
_RIGHT_ONLY = ("noop", "right", "right+A", "right+B", "right+A+B")
_SIMPLE = (*_RIGHT_ONLY, "A", "left")
_COMPLEX = (*_SIMPLE, "left+A", "left+B", "left+A+B", "down", "up")
ACTION_SETS = {"right-only": _RIGHT_ONLY, "simple": _SIMPLE, "complex": _COMPLEX}


def action_names(actions: str) -> tuple[str, ...]:
    """Names of the actions in a set, or in a comma-separated list."""
    return ACTION_SETS.get(actions) or tuple(name.strip() for name in actions.split(","))


def action_buttons(actions: str) -> tuple[int, ...]:
    """The joypad byte of each action. Raises `UserError` naming the first unknown combination of buttons."""
    if reason := why_invalid(actions):
        raise UserError(f"actions {reason}")
    return tuple(_byte(name) for name in action_names(actions))


def most_similar(action: str, others: Sequence[str]) -> str:
    """The one of some actions that holds most of the same buttons. A, which makes Mario jump, counts most."""
    held = _byte(action)

    def difference(other: str) -> tuple[int, int]:
        differing = held ^ _byte(other)
        return differing & A, differing.bit_count()

    return min(others, key=difference)


def _byte(action: str) -> int:
    """The joypad byte of an action."""
    byte = 0
    for button in action.split("+"):
        byte |= _BUTTONS[button]
    return byte


def why_invalid(actions: str) -> str:
    """Return what is wrong with an option value for actions (`must be ..., got ...`); empty if nothing is."""
    for name in action_names(actions):
        if not all(button in _BUTTONS for button in name.split("+")):
            sets, buttons = ", ".join(ACTION_SETS), ", ".join(_BUTTONS)
            return f"must be one of {sets}, or a list such as noop,right,right+A of {buttons}, got {name!r}"
    return ""


STAGES = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
WHOLE_GAME, RANDOM_STAGES = "game", "random"
HALFWAY = dict(zip(STAGES, map(int, "56406570664066406640666065700000"), strict=True))
"""The screen of each stage, counted from 0, at which the game goes on after a death behind it; 0: at the start."""
NOT_WITH_NES_PY = "must be off with the emulator nes-py, where no episode can begin so; it can with native"
WITHOUT_HALFWAY = "with --stage game and for stages without such a start (castles, world 8)"


def stages_of(name: str) -> tuple[str, ...]:
    """Stages at which episodes begin for `1-2`, `1-1,1-2`, `game` or `random`.

    Raises `UserError` that continues the option's name: `must be ..., got ...`.
    """
    if name in (WHOLE_GAME, RANDOM_STAGES):
        return STAGES if name == RANDOM_STAGES else ("1-1",)
    stages = tuple(part.strip() for part in name.split(","))
    if not set(stages) <= set(STAGES) or len(set(stages)) < len(stages):
        raise UserError(f"must be 1-1 to 8-4, game, random, or different stages such as 1-1,1-2, got {name!r}")
    return stages


def has_halfway(stage: str) -> bool:
    """Whether episodes of a task can begin in the middle of a stage."""
    return stage != WHOLE_GAME and any(HALFWAY[name] for name in stages_of(stage))
