"""Reading the header of a safetensors file, without torch."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from engine.runtime.files import open_regular

_MAX_HEADER_BYTES = 2**24


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header (JSON) and the byte offset at which the data begins.

    Raises `ValueError` or `struct.error` if the file has another format, `OSError` if it can't be read.
    """
    with open_regular(path, os.O_RDONLY, links=True) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(os.fstat(file.fileno()).st_size, _MAX_HEADER_BYTES):
            raise ValueError("not a safetensors file")
        try:
            return dict(json.loads(file.read(length))), 8 + length
        except RecursionError:
            raise ValueError("not a safetensors file") from None
