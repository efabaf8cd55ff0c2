"""What a loop outside the program may say, and why its process ends.

Numbers must be within bounds, names and text printable: all checks raise `ValueError` with the field and its accepted
values. For what `atexit` closes, Python keeps an exception that nobody has caught, but forgets the status of
`sys.exit`, so that function is wrapped. Only the main thread counts: in others it ends the thread alone.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.config.fields import LARGEST
from engine.envs.episode import LARGEST_RETURN
from engine.protocol.json_lines import check_names
from engine.protocol.outcome import Goal, Outcome, Result
from engine.runtime.text import printable

_LONGEST_NAME = 40
_LONGEST_SIDE = 1024
"""Of a picture: more than a terminal shows."""


def outcome_of(results: Sequence[str], goal: str | None) -> Outcome:
    """Return what episodes yield, from the names of results and of the goal. Raises `ValueError` for those of other
    fields."""
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


def number_name_of(name: str, taken: Collection[str]) -> None:
    """Raises `ValueError` unless a number that the loop has named may be called so."""
    if name in taken:
        raise ValueError(f"{name} must have another name: the run counts it itself")
    if not 0 < len(name) <= _LONGEST_NAME or printable(name) != name:
        raise ValueError(f"names of numbers must be up to {_LONGEST_NAME} printable characters, got {name!r}")


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


_exit = sys.exit
_status: Any = None


def watch_exit() -> None:
    """Remember from now on with which status `sys.exit` is called."""
    global _exit
    if sys.exit is not _remember:
        _exit, sys.exit = sys.exit, _remember


def program_goes_on() -> None:
    """The program goes on: if it has called `sys.exit`, it has caught that as well."""
    global _status
    if _in_main_thread():
        _status = None


def exit_error() -> BaseException | None:
    """The exception that has ended the process, as far as it is known; None if nothing is known of a failure."""
    if _status is not None:
        return SystemExit(_status)
    is_console = hasattr(sys, "ps1")  # which no error ends
    return None if is_console else getattr(sys, "last_value", None)


def _remember(status: Any = None, /) -> NoReturn:
    global _status
    if _in_main_thread():
        _status = status
    _exit(status)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
