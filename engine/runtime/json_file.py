"""Reading JSON files that this program has written, or so it seems: records, annotations, caches, layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from engine.runtime.files import read_bounded

T = TypeVar("T")


def read_json(path: Path, type: type[T], max_bytes: int, *, links: bool = False) -> T:
    """The contents of a JSON file of at most `max_bytes` bytes. With `links`, follow symbolic links.

    Raises `OSError` if it is not a regular file, is larger or can't be read, and `ValueError`, with a reason of one
    line, if it is not JSON of that type.
    """
    content = read_bounded(path, max_bytes, links=links)
    try:
        return msgspec.json.decode(content, type=type)
    except RecursionError:
        raise ValueError("nested too deeply") from None
