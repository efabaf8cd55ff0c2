"""Checks of arrays that come from a file or from another machine.

Compiled code indexes with such numbers, and neither it nor a GPU checks an index. So each is checked once, where it
enters: that it is there, has the type and shape that it must have, and lies in its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGEST_COUNT = 2**53
"""Of steps, entries and episodes: floats hold all whole numbers up to here."""
LARGEST_REWARD = 1e30
"""No return of float32 overflows."""
LARGEST_OBSERVATION = 1e30
"""Of the numbers of a vector."""
LEAST_PRIORITY, LARGEST_PRIORITY = 1e-100, 1e100
"""Between them, no importance weight is 0, infinite or NaN."""
LARGEST_FLOAT = float(np.finfo(np.float32).max)


def stored_array(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...], *dtypes: DTypeLike
) -> NDArray[Any]:
    """The array `name`, which must have this shape, where None is any length, and one of the `dtypes`.

    Raises `ValueError` if it is missing or another one, or if it holds booleans that are neither 0 nor 1.
    """
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"{name} is missing")
    if array.ndim != len(shape) or any(asked not in (None, has) for asked, has in zip(shape, array.shape, strict=True)):
        asked = str(shape).replace("None", "any")
        raise ValueError(f"{name} has the shape {array.shape} instead of {asked}")
    if array.dtype not in dtypes:
        raise ValueError(f"{name} has the type {array.dtype} instead of {np.dtype(dtypes[0])}")
    if array.dtype == np.bool_:
        check_numbers(name, array.view(np.uint8), 0, 1)
    return array


def restore_generator(generator: np.random.Generator, state: Any) -> None:
    """Continue with the random numbers of a stored `bit_generator.state`. Raises `ValueError` if it can't be one."""
    try:
        generator.bit_generator.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not the state of a random generator ({error})") from None


def check_numbers(name: str, array: NDArray[Any], low: float, high: float) -> None:
    """Raise `ValueError` unless all numbers lie between `low` and `high`, which NaN never does."""
    if array.size:
        least, most = array.min(), array.max()
        if not (low <= least and most <= high):
            raise ValueError(f"{name} must be between {low} and {high}, got {most if low <= least else least}")
