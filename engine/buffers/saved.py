"""A saved replay, read from the disk where it lies: in memory it would take as much as the replay it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.checkpoints import safetensors_header

_DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
           "I64": "<i8", "F32": "<f4", "F64": "<f8"}  # fmt: skip
"""numpy's names of those of safetensors."""


def mapped_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, which never changes; what is not looked at stays on the disk."""
    header, begin = safetensors_header(path)
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "c", offset=begin)
    return {
        name: data[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }
