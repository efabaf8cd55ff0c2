"""What a loop outside the program may say: numbers within bounds, names and text that can be printed. All raise
`ValueError` with the field and its accepted values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.config.fields import LARGEST
from engine.envs.episode import LARGEST_RETURN
from engine.protocol.outcome import Goal, Outcome, Result
from engine.protocol.result_names import check_names
from engine.runtime.text import printable

_LONGEST_SIDE = 1024
"""Of a picture: more than a terminal shows."""


def outcome_of(results: Sequence[str], goal: str | None) -> Outcome:
    """What episodes yield, from the names of results and of the goal. Raises `ValueError` for those of other fields."""
    outcome = Outcome(
        results=tuple(Result(name, name) for name in results),
        goal=None if goal is None else Goal(goal, goal),
        judged_by="return" if goal is None else "goal",
    )
    try:
        check_names(outcome)
    except ValueError as error:
        raise ValueError(f"results and goal must be other names: {error}") from None
    try:
        return msgspec.convert(msgspec.to_builtins(outcome), Outcome)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"results and goal must be at most 8 names of up to 40 printable characters: {error}"
        ) from None


def number_of(name: str, value: Any, low: float = -LARGEST_RETURN, high: float = LARGEST_RETURN) -> float:
    """The value as a float. Raises `ValueError` unless it is a number in these bounds."""
    number = float_of(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value!r}")
    return number


def float_of(name: str, value: Any) -> float:
    """The value as a float. Raises `ValueError` unless it is a number."""
    try:
        return float(value + 0)  # also refuses text
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of PyTorch, for what is no scalar
        raise ValueError(f"{name} must be a number, got {value!r}") from None


def text_of(name: str, value: str) -> str:
    """The text. Raises `ValueError` unless it is short and printable."""
    if not isinstance(value, str) or not 0 < len(value) <= 100 or printable(value) != value:
        raise ValueError(f"{name} must be up to 100 printable characters, got {value!r}")
    return value


def option_of(value: Any) -> bool | int | float | str:
    """A value as a number that JSON can hold, or as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float) and abs(value) <= LARGEST else printable(str(value))


def pixels_of(picture: Any) -> NDArray[np.uint8]:
    """A picture uint8 [height, width, 3]; of a large one, every n-th pixel. Raises `ValueError` for what is none."""
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        got = type(picture).__name__ if pixels.dtype == object else f"{pixels.dtype} {list(pixels.shape)}"
        raise ValueError(f"picture must be uint8 [height, width, 3], got {got}")
    step = math.ceil(max(pixels.shape[:2]) / _LONGEST_SIDE)
    return pixels[::step, ::step]
