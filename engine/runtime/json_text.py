"""JSON: reading files that this program has written, or so it seems (records, annotations, caches, layouts), and lines
that any terminal can print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.runtime.files import read_bounded

T = TypeVar("T")
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")


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


def json_line(value: Any) -> str:
    """One line of JSON in ASCII, which every locale can print and no character of which is unsafe."""
    return _NOT_ASCII.sub(_json_escape, msgspec.json.encode(value).decode())


def _json_escape(found: re.Match[str]) -> str:
    """JSON's escape of a character: two for one beyond U+FFFF (RFC 8259, section 7)."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
