"""Reads scalars from TensorBoard event files of any program. Imports neither torch nor NumPy.

A file is a sequence of records: length (uint64), its CRC, the data (a serialised `Event`), its CRC, all little-endian.
TensorBoard's own loader is not used: it takes a second to import and follows a single file.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

_HEAD = struct.Struct("<QI")
_TAIL_BYTES = 4
_MAX_LENGTH = 2**40
_MAX_BYTES = 2**20
"""A longer record contains images or a graph; it is skipped."""
_FLOATS = {1: "<f", 2: "<d"}
"""By TensorFlow's DataType: float and double."""
MOST_POINTS = 4096
MOST_IN_ALL = 2_000_000
"""Maximum number of points of all tags together, about 300 MB."""
MOST_SERIES = 10_000
"""Maximum number of series (a tag in one subfolder)."""
_MAX_TAG_LENGTH = 500
_BATCH = 200_000
"""Maximum number of scalars read before they are shown."""
_MAX_DEPTH = 32
"""Maximum depth of nested folders."""


class History:
    """Points (step, seconds since the first, value) of a series, oldest first; thinned evenly at `MOST_POINTS`."""

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
            self.thin()

    def thin(self) -> None:
        """Drop every second point, and keep only half as many of those to come."""
        if len(self.points) > 1:
            del self.points[::2]
            self._stride *= 2


Scalar = tuple[str, str, int, float, float]
"""Tag, subfolder, step, unix time, value."""


@dataclass
class News:
    """Scalars written since the last call, and errors of files that can't be read any further. `more`: the batch was
    full, so more can be read at once."""

    scalars: list[Scalar] = field(default_factory=list)
    broken: dict[Path, str] = field(default_factory=dict)
    more: bool = False


def event_files(path: Path) -> list[Path]:
    """Paths under a folder that are named like event files; for a file, its own path."""
    if not path.is_dir():
        return [path] if path.exists() else []
    found: list[Path] = []
    for folder, folders, names in os.walk(path):  # links to folders are not followed
        found += [Path(folder, name) for name in names if "tfevents" in name]
        if len(Path(folder).parts) >= len(path.parts) + _MAX_DEPTH:
            folders.clear()
    return sorted(found)


def is_event_file(path: Path) -> bool:
    """Whether a file is an event file, by its name or its first record."""
    try:
        with _opened(path) as file:
            first = next(_records(file, os.fstat(file.fileno()).st_size), None)
        return "tfevents" in path.name or (first is not None and Event.FromString(first).file_version != "")
    except Exception:  # protobuf's DecodeError is a different class in each implementation
        return "tfevents" in path.name


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading. Raises `ValueError` if it is not a regular file: a pipe could block, and a device may do
    anything."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ValueError("not a regular file")
    return file


class EventFolder:
    """All event files under a folder, or a single file. `collect` may run in a thread; `take_in` adds its result in the
    thread that draws."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path if path.is_dir() else path.parent
        """Base folder for the displayed file names."""
        self.tags: dict[str, dict[str, History]] = {}
        """By tag, then by the file's subfolder ("." for the folder itself)."""
        self.broken: dict[Path, str] = {}
        """Errors of files that can't be read any further."""
        self.left_out = False
        """Whether series were dropped because there are more than `MOST_SERIES`."""
        self._at: dict[Path, int] = {}
        self._series = 0
        self._points = 0  # added since the last recount, which also subtracts those that were thinned

    def collect(self) -> News:
        """Read what was written since the last call."""
        news = News()
        for path in event_files(self.path):
            if path in self.broken:
                continue
            inside = path.parent.relative_to(self.root).as_posix()
            try:
                for scalars in self._rest_of(path):
                    news.scalars += [(tag, inside, step, at, value) for tag, step, at, value in scalars]
                    if len(news.scalars) >= _BATCH:
                        news.more = True
                        return news
            except OSError as error:
                if path.is_symlink() or path.exists():  # not deleted in the meantime
                    news.broken[path] = error.strerror or str(error)
            except ValueError as error:
                news.broken[path] = str(error)
        return news

    def take_in(self, news: News) -> bool:
        """Add the result of `collect`; returns whether it contained anything."""
        for tag, inside, step, wall_time, value in news.scalars:
            history = self._history(tag, inside)
            if history is not None:
                history.add(step, wall_time, value)
        self._thin(len(news.scalars))
        self.broken |= news.broken
        return bool(news.scalars or news.broken)

    def _history(self, tag: str, inside: str) -> History | None:
        """The history of a series; None if there are too many series."""
        tag = tag[-_MAX_TAG_LENGTH:]
        histories = self.tags.get(tag, {})
        if inside not in histories:
            if self._series >= MOST_SERIES:
                self.left_out = True
                return None
            self._series += 1
            self.tags.setdefault(tag, histories)[inside] = History()
        return self.tags[tag][inside]

    def _thin(self, added: int) -> None:
        """Keep the total number of points within `MOST_IN_ALL`."""
        self._points += added
        if self._points <= MOST_IN_ALL:
            return
        histories = [history for inside in self.tags.values() for history in inside.values()]
        while (points := sum(len(history.points) for history in histories)) > MOST_IN_ALL:
            for history in histories:
                history.thin()
        self._points = points

    def _rest_of(self, path: Path) -> Iterator[list[tuple[str, int, float, float]]]:
        """New scalars of a file, record by record. The caller may stop after any record and continue later."""
        with _opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(self._at.get(path, 0))
            for data in _records(file, size):
                self._at[path] = file.tell()
                yield list(scalars_of(data))


def _records(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Data of each complete record from the current position; empty for records that are too long.

    Raises `ValueError` if the file does not contain records.
    """
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, _ = _HEAD.unpack(head)
        if not 0 < length <= _MAX_LENGTH:
            raise ValueError("not a TensorBoard event file")
        if file.tell() + length + _TAIL_BYTES > size:
            return  # still being written
        if length > _MAX_BYTES:
            file.seek(length + _TAIL_BYTES, 1)
            yield b""
        else:
            yield file.read(length + _TAIL_BYTES)[:length]


def scalars_of(data: bytes) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, unix time and value of each scalar in a serialised `Event`. Raises `ValueError` if it is not one."""
    try:
        event = Event.FromString(data)
    except Exception as error:  # protobuf's DecodeError is a different class in each implementation
        raise ValueError(f"not a TensorBoard event ({error})") from None
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            yield value.tag, int(event.step), float(event.wall_time), number


def _number(value: Summary.Value) -> float | None:
    """A scalar: a simple value (PyTorch, TensorFlow 1) or a tensor with one element (TensorFlow 2, JAX); else None."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or any(side.size != 1 for side in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    if tensor.dtype not in _FLOATS:
        return None
    if tensor.tensor_content:
        form = _FLOATS[tensor.dtype]
        whole = len(tensor.tensor_content) == struct.calcsize(form)
        return float(struct.unpack(form, tensor.tensor_content)[0]) if whole else None
    numbers = tensor.float_val or tensor.double_val
    return float(numbers[0]) if len(numbers) else None
