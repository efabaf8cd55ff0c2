"""Reading the header of a safetensors file, without torch. The file may be foreign."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Annotated, Any

import msgspec

from engine.runtime.files import open_regular

DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
          "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}  # fmt: skip
"""NumPy's names of the dtypes, by those of safetensors."""
_MAX_HEADER_BYTES = 2**24
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class TensorEntry(msgspec.Struct, frozen=True):
    """Where a tensor is in its file, and what it is."""

    dtype: str
    shape: Annotated[list[_Size], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Size, _Size]
    """Of the first byte and of the one after the last, from the beginning of the data."""


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header (JSON) and the byte offset at which the data begins.

    Raises `ValueError` if the file has another format, `OSError` if it can't be read.
    """
    with open_regular(path, os.O_RDONLY, links=True) as file:
        try:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(os.fstat(file.fileno()).st_size, _MAX_HEADER_BYTES):
                raise ValueError
            return dict(json.loads(file.read(length))), 8 + length
        except (struct.error, RecursionError, TypeError, ValueError):
            raise ValueError("not a safetensors file") from None


def tensor_entries(path: Path) -> tuple[dict[str, TensorEntry], int]:
    """The tensors of a file by name, and the byte offset at which the data begins. They fill the data without gaps.

    Raises `ValueError` that says what is wrong, `OSError` if the file can't be read.
    """
    header, begin = safetensors_header(path)
    header.pop("__metadata__", None)
    entries = msgspec.convert(header, dict[str, TensorEntry])
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.dtype not in DTYPES:
            raise ValueError(f"{name} has the unknown dtype {entry.dtype}")
        size = math.prod(entry.shape) * int(DTYPES[entry.dtype][-1:].replace("?", "1"))
        if entry.data_offsets != (end, end + size):
            raise ValueError(f"{name} does not have as many bytes as its shape says")
        end += size
    if begin + end != path.stat().st_size:
        raise ValueError(f"must have {begin + end:,} bytes, got {path.stat().st_size:,}")
    return entries, begin
