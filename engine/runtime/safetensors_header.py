"""The header of a safetensors file."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from engine.runtime.files import open_regular

_MOST_HEADER_BYTES = 2**24


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """Of a safetensors file, and where its data begins. Raises `ValueError`, `struct.error` or `OSError`."""
    with open_regular(path, os.O_RDONLY, links=True) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(path.stat().st_size, _MOST_HEADER_BYTES):
            raise ValueError("not a safetensors file")
        try:
            return dict(json.loads(file.read(length))), 8 + length
        except RecursionError:
            raise ValueError("not a safetensors file") from None
