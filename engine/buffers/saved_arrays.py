"""Saving arrays to a safetensors file in pieces, and mapping them from it.

The safetensors package would copy all arrays, so saving or loading a replay would need its memory twice.

The format: length of the header (uint64), header (JSON: dtype, shape and offsets of each array), bytes of the arrays.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.runtime.files import new_file, open_regular
from engine.runtime.safetensors_header import DTYPES, tensor_entries

_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_ALIGNMENT = 8  # bytes
PIECE_BYTES = 2**24


class Column(Protocol):
    """Something that can be saved: an array (possibly a view), or an object that returns arrays when indexed."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, part: Any, /) -> Any:
        """The part as NDArray."""


def save_arrays(path: Path, columns: Mapping[str, Column], progress: Callable[[], object] = lambda: None) -> None:
    """Write arrays [lanes, entries, ...], and small ones of fewer dimensions, to a safetensors file.

    At most about `PIECE_BYTES` are copied at a time. `progress` is called after each piece is on disk.
    """
    header, end = {}, 0
    names = sorted(columns, key=lambda name: (-columns[name].dtype.itemsize, name))  # so that every array is aligned
    for name in names:
        shape, dtype = columns[name].shape, columns[name].dtype
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with new_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            for piece in _pieces(columns[name]):
                file.write(np.ascontiguousarray(piece).data)
                file.flush()
                os.fsync(file.fileno())
                progress()


def mapped_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a safetensors file copy-on-write: unread parts stay on disk, writes never reach the file.

    Raises as `tensor_entries` does.
    """
    entries, begin = tensor_entries(path)
    if path.stat().st_size == begin:  # an empty file can't be mapped
        return {name: np.empty(entry.shape, DTYPES[entry.dtype]) for name, entry in entries.items()}
    with open_regular(path, os.O_RDONLY) as file:
        data = np.memmap(file, np.uint8, "c", offset=begin)
    return {
        name: data[slice(*entry.data_offsets)].view(DTYPES[entry.dtype]).reshape(entry.shape)
        for name, entry in entries.items()
    }


def _pieces(column: Column) -> Iterator[NDArray[Any]]:
    """All pieces of a column, in order."""
    if len(column.shape) < 2:
        yield column[...]
        return
    lanes, entries, *rest = column.shape
    many = max(1, PIECE_BYTES // (math.prod(rest) * column.dtype.itemsize))
    for lane in range(lanes):
        for first in range(0, entries, many):
            yield column[lane, first : first + many]
