"""Reads the records of an event file: scalars into columns, everything else as protobuf messages.

A file is a sequence of records: length (uint64), its CRC, the data (a serialised `Event`), its CRC, all little-endian.
Almost all of them hold one scalar, and those of a series differ only in wall time, step and value. So protobuf parses
the first one, and the rest of its bytes is remembered as a template. Later records with the same bytes are read without
protobuf, three times as fast. What becomes a template is probed first: protobuf must read another time, step and value
from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from mario_tui.data.event_files.history import Columns

HEAD_BYTES = 12
RECORD_BYTES = HEAD_BYTES + 4
"""What a record takes beside its data."""
NO_EVENTS = "not a TensorBoard event file"
MOST_BYTES = 2**20
"""A longer record contains images or a graph; it is not parsed."""
MOST_SERIES = 10_000
"""Maximum number of series (a tag in one subfolder)."""
MOST_LETTERS = 500
"""Maximum length of a tag; a longer one loses its beginning."""
_MAX_LENGTH = 2**40
_MOST_TEMPLATES = 2 * MOST_SERIES
_MOST_FAILURES = 1000
"""After so many records that did not become templates, no more are tried."""
_LENGTH = struct.Struct("<Q")
_HEAD = struct.Struct("<Q4xBd")
"""Length, CRC (not checked), key of the event's first field, and its value if that is the wall time."""
_WALL_TIME, _STEP, _STEP_AT = 0x09, 0x10, 9
"""Keys of two fields of `Event` (number and wire type), which all writers put first, and where the second one is."""
_SHORTEST = 17
"""Length of an event with a wall time, a step, and a scalar that has no name."""
_FORMS = struct.Struct("<f"), struct.Struct("<d")
_PROBES = [struct.pack("8B", *range(first, first + 8)) for first in (0x11, 0x21)]
"""Bytes of values: they differ from each other, so no value that is read from another place can be the same."""
_TENSOR_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""By TensorFlow's DataType: float, double, int32, int64."""


@dataclass(frozen=True)
class _Templates:
    """Templates of one length whose value is in the same place."""

    before: int
    """Number of bytes between the step and the value."""
    form: struct.Struct
    tags: dict[bytes, str] = field(default_factory=dict)
    """By the bytes before and after the value."""


class Scanner:
    """Reads pieces of files. It keeps nothing but templates, at most `_MOST_TEMPLATES`."""

    def __init__(self) -> None:
        self._templates: dict[int, _Templates] = {}  # by the number of bytes after the step
        self._count = 0
        self._failures = 0

    def scan(self, piece: bytes, scalars: dict[str, Columns], other: Callable[[Event], None]) -> int:
        """Add the scalars of all whole records to columns by tag, and pass on events with anything else. Returns the
        number of bytes that were read: up to a record that is incomplete, or longer than `MOST_BYTES`.

        Raises `ValueError` if the piece contains something else than records.
        """
        size = len(piece)
        padded = piece + bytes(_HEAD.size)
        head, templates, at = _HEAD.unpack_from, self._templates, 0
        while at + RECORD_BYTES < size:
            length, key, wall_time = head(padded, at)
            if not 0 < length <= _MAX_LENGTH:
                raise ValueError(NO_EVENTS)
            begin = at + HEAD_BYTES
            end = begin + length
            if end + 4 > size or length > MOST_BYTES:
                break
            at = end + 4
            if length < _SHORTEST or key != _WALL_TIME or piece[begin + _STEP_AT] != _STEP:
                self._parse(piece[begin:end], scalars, other)
                continue
            rest = begin + _STEP_AT + 2
            step = piece[rest - 1]
            if step > 127:  # a varint: seven bits a byte, the lowest first
                step, shift = step & 127, 7
                while (byte := piece[rest]) > 127 and shift < 49:
                    step |= (byte & 127) << shift
                    shift += 7
                    rest += 1
                if byte > 127:  # negative, or beyond all reason
                    self._parse(piece[begin:end], scalars, other)
                    continue
                step |= byte << shift
                rest += 1
            like = templates.get(end - rest)
            if like is not None:
                place = rest + like.before
                tag = like.tags.get(piece[rest:place] + piece[place + like.form.size : end])
                if tag is not None:
                    columns = scalars.get(tag)
                    if columns is None:
                        columns = _columns(scalars, tag)
                    if columns is not None:
                        columns.steps.append(step)
                        columns.times.append(wall_time)
                        columns.values.append(like.form.unpack_from(piece, place)[0])
                    continue
            self._learn(piece[rest:end], self._parse(piece[begin:end], scalars, other))
        return at

    def _parse(self, data: bytes, scalars: dict[str, Columns], other: Callable[[Event], None]) -> Event:
        event = parsed(data)
        step, wall_time, others = event.step, event.wall_time, event.WhichOneof("what") != "summary"
        for value in event.summary.value:
            found = number(value)
            if found is None:
                others = True
            elif (columns := _columns(scalars, value.tag[-MOST_LETTERS:])) is not None:
                columns.append(step, wall_time, found)
        if others:
            other(event)
        return event

    def _learn(self, rest: bytes, event: Event) -> None:
        """Make a template of an event; `rest` are its bytes after the step."""
        if self._failures > _MOST_FAILURES or self._count >= _MOST_TEMPLATES or len(rest) > 2 * MOST_LETTERS:
            return
        found = _place(rest, event)
        if found is None:
            self._failures += 1
            return
        place, form = found
        like = self._templates.setdefault(len(rest), _Templates(place, form))
        if (like.before, like.form) == found:
            like.tags[rest[:place] + rest[place + form.size :]] = event.summary.value[0].tag[-MOST_LETTERS:]
            self._count += 1
        else:
            self._failures += 1


def length_of(head: bytes) -> int:
    """Length of a record's data. Raises `ValueError` if it can't be the head of a record."""
    length = int(_LENGTH.unpack_from(head)[0])
    if not 0 < length <= _MAX_LENGTH:
        raise ValueError(NO_EVENTS)
    return length


def parsed(data: bytes) -> Event:
    """Raises `ValueError` if it is not a serialised `Event`."""
    try:
        return Event.FromString(data)
    except Exception as error:  # protobuf's DecodeError is a different class in each implementation
        raise ValueError(f"not a TensorBoard event ({error})") from None


def scalars_of(event: Event) -> Iterator[tuple[str, float]]:
    """Tag and value of each scalar."""
    for value in event.summary.value:
        found = number(value)
        if found is not None:
            yield value.tag, found


def number(value: Summary.Value) -> float | None:
    """A scalar: a simple value (PyTorch, TensorFlow 1) or a tensor with one element (TensorFlow 2, JAX); else None."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or any(side.size != 1 for side in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    form = _TENSOR_FORMS.get(tensor.dtype)
    if form is None:
        return None
    if tensor.tensor_content:
        whole = len(tensor.tensor_content) == struct.calcsize(form)
        return float(struct.unpack(form, tensor.tensor_content)[0]) if whole else None
    numbers = tensor.float_val or tensor.double_val or tensor.int_val or tensor.int64_val
    return float(numbers[0]) if len(numbers) else None


def _columns(scalars: dict[str, Columns], tag: str) -> Columns | None:
    """The columns of a tag; None if there are too many tags (one more than all, so that this can be told)."""
    columns = scalars.get(tag)
    if columns is None and len(scalars) <= MOST_SERIES:
        columns = scalars[tag] = Columns()
    return columns


def _place(rest: bytes, event: Event) -> tuple[int, struct.Struct] | None:
    """Where the value of an event with one scalar is, and its form; None if it isn't that simple."""
    if len(event.summary.value) != 1 or (value := number(event.summary.value[0])) is None:
        return None
    for form in _FORMS:
        try:
            place = rest.rfind(form.pack(value))
        except OverflowError:  # a double that is no float
            continue
        if place >= 0 and _holds(rest, place, form, event.summary.value[0].tag, value):
            return place, form
    return None


def _holds(rest: bytes, place: int, form: struct.Struct, tag: str, value: float) -> bool:
    """Whether the event's time, step and value can be replaced."""
    content = next(each[: form.size] for each in _PROBES if form.unpack(each[: form.size]) != (value,))
    head = struct.pack("<BdBB", _WALL_TIME, 1.5, _STEP, 77)
    try:
        probe = parsed(head + rest[:place] + content + rest[place + form.size :])
    except ValueError:
        return False
    return (probe.wall_time, probe.step, list(scalars_of(probe))) == (1.5, 77, [(tag, *form.unpack(content))])
