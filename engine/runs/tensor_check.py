"""Checks the tensors of a safetensors file that may be foreign, without torch: that the file is complete, and that its
numbers are finite. Weights that are not would play the same action for ever, or end a run by an infinite loss.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.runtime.safetensors_header import DTYPES, TensorEntry, tensor_entries

LARGEST = 1e6
"""Upper bound of absolute values: products of a few larger ones are infinite in float32."""
_PIECE = 2**22


def check_tensors(
    path: Path, bounds: Callable[[str], tuple[float, float]] = lambda name: (-LARGEST, LARGEST)
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
