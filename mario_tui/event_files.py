"""Scalars out of TensorBoard event files, whoever wrote them. Imports without torch and NumPy.

A file is a sequence of records: length (uint64), its CRC, the data (a serialised `Event`), its CRC, all little-endian.
TensorBoard's own loader is not used: it brings a second of imports and follows one file only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

_HEAD = struct.Struct("<QI")
_TAIL_BYTES = 4
_LONGEST = 2**40
_MOST_BYTES = 2**20
"""A longer record holds pictures or a graph; it is passed over."""
_FLOATS = {1: "<f", 2: "<d"}
"""By TensorFlow's DataType: float and double."""
MOST_POINTS = 4096


class History:
    """Points (step, seconds since the first, value) of a tag, oldest first: all until there are `MOST_POINTS`, then
    evenly thinned."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float]] = []
        self._begun = 0.0
        self._stride = 1
        self._skipped = 0

    def add(self, step: int, wall_time: float, value: float) -> None:
        self._begun = self._begun or wall_time
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.points.append((step, wall_time - self._begun, value))
        if len(self.points) >= MOST_POINTS:
            del self.points[::2]
            self._stride *= 2


Scalar = tuple[str, str, int, float, float]
"""Tag, subfolder, step, unix time, value."""


@dataclass
class News:
    """What was written since the last time, and what is wrong with files that can't be read on."""

    scalars: list[Scalar] = field(default_factory=list)
    broken: dict[Path, str] = field(default_factory=dict)


def event_files(path: Path) -> list[Path]:
    """The event files under a folder, by their names; a file stands for itself."""
    return [path] if path.is_file() else sorted(path.glob("**/*tfevents*"))


def is_event_file(path: Path) -> bool:
    """Whether a file is one by its name or by how it begins."""
    try:
        with path.open("rb") as file:
            first = next(_records(file, path.stat().st_size), None)
        return "tfevents" in path.name or (first is not None and Event.FromString(first).file_version != "")
    except Exception:  # protobuf's DecodeError is another class in each of its implementations
        return "tfevents" in path.name


class EventFolder:
    """Every event file under a folder, or one alone. `collect` may run in a thread; what it brings is taken in where it
    is shown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.parent if path.is_file() else path
        """What names of files are relative to."""
        self.tags: dict[str, dict[str, History]] = {}
        """By tag, then by the subfolder that its file is in ("." is the folder itself)."""
        self.broken: dict[Path, str] = {}
        """What is wrong with files that can't be read on."""
        self._at: dict[Path, int] = {}

    def collect(self) -> News:
        """Read what was written since the last time."""
        news = News()
        for path in event_files(self.path):
            if path in self.broken or not path.is_file():
                continue
            inside = path.parent.relative_to(self.root).as_posix()
            try:
                for tag, step, wall_time, value in self._rest_of(path):
                    news.scalars.append((tag, inside, step, wall_time, value))
            except (OSError, ValueError) as error:
                news.broken[path] = str(error)
        return news

    def take_in(self, news: News) -> bool:
        """Whether there was anything new."""
        for tag, inside, step, wall_time, value in news.scalars:
            self.tags.setdefault(tag, {}).setdefault(inside, History()).add(step, wall_time, value)
        self.broken |= news.broken
        return bool(news.scalars or news.broken)

    def _rest_of(self, path: Path) -> Iterator[tuple[str, int, float, float]]:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(self._at.get(path, 0))
            for data in _records(file, size):
                self._at[path] = file.tell()
                yield from scalars_of(data)


def _records(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The data of each complete record from here on; empty if it is too long to be of interest.

    Raises `ValueError` if these are no records.
    """
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, _ = _HEAD.unpack(head)
        if length > _LONGEST:
            raise ValueError("not an event file of TensorBoard")
        if file.tell() + length + _TAIL_BYTES > size:
            return  # still being written
        if length > _MOST_BYTES:
            file.seek(length + _TAIL_BYTES, 1)
            yield b""
        else:
            yield file.read(length + _TAIL_BYTES)[:length]


def scalars_of(data: bytes) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, unix time and value of each scalar in a serialised `Event`. Raises `ValueError` if it is none."""
    try:
        event = Event.FromString(data)
    except Exception as error:  # protobuf's DecodeError is another class in each of its implementations
        raise ValueError(f"not an event of TensorBoard ({error})") from None
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            yield value.tag, int(event.step), float(event.wall_time), number


def _number(value: Summary.Value) -> float | None:
    """As PyTorch and TensorFlow 1 write it, or as a tensor with one element, as TensorFlow 2 and JAX do."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or math.prod(side.size for side in value.tensor.tensor_shape.dim) != 1:
        return None
    tensor = value.tensor
    if tensor.dtype not in _FLOATS:
        return None
    if tensor.tensor_content:
        return float(struct.unpack(_FLOATS[tensor.dtype], tensor.tensor_content)[0])
    numbers = tensor.float_val or tensor.double_val
    return float(numbers[0]) if len(numbers) else None
