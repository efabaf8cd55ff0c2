"""What the environments for Gymnasium have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError

RENDER_MODES = ("rgb_array",)

Observation = NDArray[np.uint8]
Flags = NDArray[np.bool_]


def checked(option: str, value: Any, accepted: tuple[Any, ...]) -> Any:
    """Return the value. Raises `UserError` if it is not accepted."""
    if value not in accepted:
        raise UserError(f"{option} must be one of {', '.join(map(str, accepted))}, got {value!r}")
    return value


def check_actions(actions: NDArray[np.int64], games: int, number: int) -> None:
    """Raise `ValueError` unless there is an action below `number` for each game."""
    if actions.shape != (games,) or actions.min() < 0 or actions.max() >= number:
        raise ValueError(f"actions must be {games} integers between 0 and {number - 1}, one per game, got {actions}")
