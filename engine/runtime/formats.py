"""Read files in JSON, TOML and safetensors that may be anything, and write JSON that any terminal can print."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import re
import struct
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from engine.runtime.files import open_regular, read_bounded

T = TypeVar("T")
_UNCOLLECTED = threading.RLock()
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from running in the block, which parses what may be nested up to Python's limit of
    recursion: a finaliser that the collector called down there would fail halfway."""
    with _UNCOLLECTED:
        enabled = gc.isenabled()
        try:
            gc.disable()
            yield
        finally:
            if enabled:
                gc.enable()


def read_json(path: Path, type: type[T], max_bytes: int, *, links: bool = False) -> T:
    """The contents of a JSON file of at most `max_bytes` bytes. With `links`, follow symbolic links.

    Raises `OSError` if it is not a regular file, is larger or can't be read, and `ValueError`, with a reason of one
    line, if it is not JSON of that type.
    """
    return parsed_json(read_bounded(path, max_bytes, links=links), type)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_BUILDING = threading.Lock()
"""While a decoder is built: msgspec 0.22 crashes if two threads are the first to ask for a type."""


def parsed_json(content: bytes | str, type: type[T]) -> T:
    """The value of that type in JSON. Raises `ValueError` with a reason of one line."""
    with _BUILDING:
        decoder: msgspec.json.Decoder[T] = _DECODERS.get(type) or _DECODERS.setdefault(type, msgspec.json.Decoder(type))
    try:
        with uncollected():
            return decoder.decode(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_line(value: Any) -> str:
    """One line of JSON in ASCII, which every locale can print and no character of which is unsafe."""
    return _NOT_ASCII.sub(_json_escape, msgspec.json.encode(value).decode())


def _json_escape(found: re.Match[str]) -> str:
    """JSON's escape of a character: two for one beyond U+FFFF (RFC 8259, section 7)."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


_MAX_BYTES = 2**20


def read_toml(path: Path) -> dict[str, Any]:
    """The values in a TOML file.

    Raises `OSError` if it is not a regular file, is larger than 1 MiB or can't be read, and `ValueError`, with a reason
    of one line, if it is not TOML in UTF-8.
    """
    return parsed_toml(toml_text(path))


def toml_text(path: Path) -> str:
    """The text of a TOML file. Raises as `read_toml` does."""
    return read_bounded(path, _MAX_BYTES, links=True).decode("utf-8")


def parsed_toml(text: str) -> dict[str, Any]:
    """The values in the text of a TOML file. Raises `ValueError` with a reason of one line."""
    try:
        with uncollected():
            return tomllib.loads(text)
    except ValueError as error:  # also a number of 5,000 digits
        raise ValueError(str(error).splitlines()[0]) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


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
            header = file.read(length)
            with uncollected():
                return dict(json.loads(header)), 8 + length
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
