"""Checks of arrays that come from a file or from another machine.

Compiled code indexes with such numbers, and neither it nor a GPU checks an index. So each is checked once, where it
enters: that it is there, has the type and shape that it must have, and lies in its range.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from engine.runtime.formats import DTYPES, TensorEntry, tensor_entries

# ruff: noqa: NPY002  # the generator that users' code draws from


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
        least, most = array.min().item(), array.max().item()  # a float32 compares as if the bound were one too
        if not (low <= least and most <= high):
            raise ValueError(f"{name} must be between {low} and {high}, got {most if low <= least else least}")


# All code of a process shares `random` and `numpy.random`. Ours never draws from them, but an environment may. So each
# process that plays seeds them.
_WORDS = 624
"""Of the state of both (Mersenne Twister); the number of the next word follows them."""
_OF_RANDOM, _OF_NUMPY, _SPARE = "globals.random", "globals.numpy", "globals.spare"
"""The last holds, for each of the two, whether there is a spare normal number, and that number."""


def seed_global_random(number: int) -> None:
    """Seed `random` and `numpy.random`, from which environments may draw."""
    random.seed(number)
    with contextlib.suppress(TypeError):  # an environment has set another kind of generator
        np.random.seed(number % 2**32)


@contextlib.contextmanager
def seeded_global_random(number: int) -> Iterator[None]:
    """Seed `random` and `numpy.random` for the block; after it they go on as if they had not been used in it."""
    before, before_numpy = random.getstate(), np.random.get_state(legacy=False)
    seed_global_random(number)
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(before_numpy)


def global_random_state() -> dict[str, NDArray[Any]]:
    """Return the state of `random` and `numpy.random` for a checkpoint, without that of `numpy.random` if it was given
    another kind of generator."""
    _, words, spare = random.getstate()
    found: dict[str, Any] = np.random.get_state(legacy=False)
    spares = [(spare is not None, spare or 0.0), (found.get("has_gauss", 0), found.get("gauss", 0.0))]
    stored: dict[str, NDArray[Any]] = {_OF_RANDOM: np.array(words, np.uint32), _SPARE: np.array(spares, np.float64)}
    if found["bit_generator"] == "MT19937":
        stored[_OF_NUMPY] = np.append(found["state"]["key"], found["state"]["pos"]).astype(np.uint32)
    return stored


def load_global_random_state(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Go on from a `global_random_state`, if there is one: checkpoints of earlier versions have none. Raises
    `ValueError` if it can't be one."""
    if _OF_RANDOM not in arrays:
        return
    (has_first, first), (has_second, second) = stored_array(arrays, _SPARE, (2, 2), np.float64).tolist()
    for name in filter(arrays.__contains__, (_OF_RANDOM, _OF_NUMPY)):
        check_numbers(f"the last of {name}", stored_array(arrays, name, (_WORDS + 1,), np.uint32)[-1:], 0, _WORDS)
    random.setstate((3, tuple(arrays[_OF_RANDOM].tolist()), first if has_first else None))
    if _OF_NUMPY in arrays:
        *key, place = arrays[_OF_NUMPY].tolist()
        np.random.set_state(("MT19937", np.array(key, np.uint32), place, int(bool(has_second)), second))


LARGEST_WEIGHT = 1e6
"""Upper bound of absolute values: products of a few larger ones are infinite in float32."""
_PIECE = 2**22


def check_tensors(
    path: Path, bounds: Callable[[str], tuple[float, float]] = lambda name: (-LARGEST_WEIGHT, LARGEST_WEIGHT)
) -> dict[str, TensorEntry]:
    """The tensors of a file. `bounds`: those of the floats in a tensor with this name.

    Raises `ValueError` that says what is wrong, `OSError` if the file can't be read.
    """
    entries, begin = tensor_entries(path)
    for name, entry in entries.items():
        if entry.dtype.startswith("F") and entry.data_offsets[1] > entry.data_offsets[0]:
            first, end = entry.data_offsets
            dtype = np.dtype(DTYPES[entry.dtype])
            numbers = np.memmap(path, dtype, "r", offset=begin + first, shape=((end - first) // dtype.itemsize,))
            _check_range(name, numbers, *bounds(name))
    return entries


def _check_range(name: str, numbers: NDArray[np.floating[Any]], low: float, high: float) -> None:
    for first in range(0, numbers.size, _PIECE):
        piece = numbers[first : first + _PIECE]
        if not np.isfinite(piece).all():
            raise ValueError(f"{name} has numbers that are NaN or infinite")
        least, largest = float(piece.min()), float(piece.max())
        if least < low or largest > high:
            raise ValueError(f"{name} must be between {low:g} and {high:g}, got {least:g} to {largest:g}")
