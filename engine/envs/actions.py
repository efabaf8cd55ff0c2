"""Names of each game's actions, for the dashboard. Imports nothing heavy, because the host uses it."""

from __future__ import annotations

from engine.config import joypad
from engine.config.run_config import RunConfig

_MOVES = ("up", "right", "down", "left")
_ROTATIONS = 4


def action_names(config: RunConfig) -> list[str]:
    """A name for each action of a run's game, in the order of the agent's Q-values."""
    if config.game == "mario":
        return list(joypad.action_names(config.actions))
    if config.game == "snake":
        return list(_MOVES)
    width = int((config.board or "").split("x")[0])
    return [f"{90 * turn}° col {column}" for turn in range(_ROTATIONS) for column in range(1, width + 1)]
