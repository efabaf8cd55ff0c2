"""Arrays in a safetensors file, written in pieces and read from the disk where they lie: a replay in a checkpoint would
take as much memory again as the one that it is of.

The format: the header's length (uint64), the header (JSON: type, shape and place of each array), the arrays' bytes.
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

from engine.runtime.safetensors_header import safetensors_header

_DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
           "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}  # fmt: skip
"""numpy's names of those of safetensors."""
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_ALIGNMENT = 8  # bytes
PIECE_BYTES = 2**24


class Column(Protocol):
    """What is saved: an array, also a part of a larger one; or what gives arrays of its parts, wherever it lies."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, part: Any, /) -> Any:
        """NDArray of the part."""


def save_arrays(path: Path, columns: Mapping[str, Column], progress: Callable[[], object] = lambda: None) -> None:
    """Write a safetensors file of arrays [lanes, entries, ...], and of small ones of other shapes.

    At no time more than `PIECE_BYTES` are copied. `progress` is called after each piece is on the disk.
    """
    header, end = {}, 0
    names = sorted(columns, key=lambda name: (-columns[name].dtype.itemsize, name))  # so that all are aligned
    for name in names:
        shape, dtype = columns[name].shape, columns[name].dtype
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            for piece in _pieces(columns[name]):
                file.write(np.ascontiguousarray(piece).data)
                file.flush()
                os.fsync(file.fileno())
                progress()


def mapped_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, which never changes; what is not looked at stays on the disk."""
    header, begin = safetensors_header(path)
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "c", offset=begin)
    return {
        name: data[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def _pieces(column: Column) -> Iterator[NDArray[Any]]:
    """All of a column, in order."""
    if len(column.shape) < 2:
        yield column[...]
        return
    lanes, entries, *rest = column.shape
    many = max(1, PIECE_BYTES // (math.prod(rest) * column.dtype.itemsize))
    for lane in range(lanes):
        for first in range(0, entries, many):
            yield column[lane, first : first + many]
