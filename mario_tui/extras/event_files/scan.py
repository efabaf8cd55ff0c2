"""Reads the records of an event file: scalars into columns, everything else as protobuf messages.

Almost all records hold one scalar, and those of a series differ only in wall time, step and value. So protobuf parses
the first one, and the rest of its bytes is remembered as a template. Later records with the same bytes are read without
protobuf, three times as fast. What becomes a template is probed first: protobuf must read another time, step and value
from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from google_crc32c import value as crc32c
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from mario_tui.extras.event_files.history import Columns
from mario_tui.extras.event_files.records import HEAD_BYTES, MASK, MASK_DELTA, RECORD_BYTES, masked, parsed

MOST_BYTES = 2**20
"""A longer record contains images or a graph; it is abridged before it is parsed."""
MOST_SERIES = 10_000
"""Maximum number of series (a tag in one subfolder)."""
MOST_LETTERS = 500
"""Maximum length of a tag; a longer one loses its beginning."""
_MOST_TEMPLATES = 2 * MOST_SERIES
_MOST_FAILURES = 1000
"""After so many records that did not become templates, no more are tried."""
_MOST_HEADS = 4096
_HEAD = struct.Struct("<QIBd")
"""Length, its checksum, key of the event's first field, and its value if that is the wall time."""
_FOOT = struct.Struct("<I")
_WALL_TIME, _STEP, _STEP_AT = 0x09, 0x10, 9
"""Keys of two fields of `Event` (number and wire type), which all writers put first, and where the second one is."""
_SHORTEST = 18
"""Length of an event with a wall time and any step; with a scalar it is longer."""
_FORMS = struct.Struct("<f"), struct.Struct("<d")
_PROBES = [struct.pack("8B", *range(first, first + 8)) for first in (0x11, 0x21)]
"""Bytes of values: they differ from each other, so no value that is read from another place can be the same."""
_BFLOAT16 = "bfloat16"
"""The upper half of a float, which `struct` has no letter for."""
_TENSOR_FORMS = {
    1: ("<f", "float_val"), 2: ("<d", "double_val"), 3: ("<i", "int_val"), 4: ("<B", "int_val"), 5: ("<h", "int_val"),
    6: ("<b", "int_val"), 9: ("<q", "int64_val"), 10: ("<?", "bool_val"), 14: (_BFLOAT16, "half_val"),
    17: ("<H", "int_val"), 19: ("<e", "half_val"), 22: ("<I", "uint32_val"), 23: ("<Q", "uint64_val"),
}  # fmt: skip
"""By TensorFlow's DataType, how a number is stored in bytes and in which field: float, double, int32, uint8, int16,
int8, int64, bool, bfloat16, uint16, half, uint32, uint64."""


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
        self._heads: dict[int, int] = {}  # checksums of lengths

    def scan(self, piece: bytes, scalars: dict[str, Columns], other: Callable[[Event], None]) -> int:
        """Add the scalars of all whole records to columns by tag, and pass on events with anything else. Returns the
        number of bytes that were read: up to a record that is incomplete, longer than `MOST_BYTES`, or no record.

        An event that discards later steps takes them out of the columns before it is passed on.
        """
        size = len(piece)
        padded = piece + bytes(_HEAD.size)
        head, foot, heads, templates = _HEAD.unpack_from, _FOOT.unpack_from, self._heads, self._templates
        at = begin = 0
        try:
            while at + RECORD_BYTES <= size:
                length, crc, key, wall_time = head(padded, at)
                if crc != heads.get(length) and not self._is_length(length, crc):
                    break
                begin = at + HEAD_BYTES
                end = begin + length
                if end + 4 > size or length > MOST_BYTES:
                    break
                data = piece[begin:end]
                crc = crc32c(data)
                if ((crc >> 15 | crc << 17) + MASK_DELTA) & MASK != foot(piece, end)[0]:  # `masked`, without a call
                    break
                at = end + 4
                if length < _SHORTEST or key != _WALL_TIME or data[_STEP_AT] != _STEP:
                    add_event(parsed(data), scalars, other)
                    continue
                rest = _STEP_AT + 2
                step = data[rest - 1]
                if step > 127:  # a varint: seven bits a byte, the lowest first
                    step, shift = step & 127, 7
                    while (byte := data[rest]) > 127 and shift < 49:
                        step |= (byte & 127) << shift
                        shift += 7
                        rest += 1
                    if byte > 127:  # negative, or beyond all reason
                        add_event(parsed(data), scalars, other)
                        continue
                    step |= byte << shift
                    rest += 1
                like = templates.get(length - rest)
                if like is not None:
                    place = rest + like.before
                    tag = like.tags.get(data[rest:place] + data[place + like.form.size :])
                    if tag is not None:
                        columns = scalars.get(tag)
                        if columns is None:
                            columns = _columns(scalars, tag)
                        if columns is not None:
                            columns.steps.append(step)
                            columns.times.append(wall_time)
                            columns.values.append(like.form.unpack_from(data, place)[0])
                        continue
                event = parsed(data)
                add_event(event, scalars, other)
                self._learn(data[rest:], event)
        except ValueError:  # the checksum is right, but it is no event
            return begin - HEAD_BYTES
        return at

    def _is_length(self, length: int, crc: int) -> bool:
        """Return whether it is the checksum of a length."""
        right = crc == masked(crc32c(struct.pack("<Q", length)))
        if right and len(self._heads) < _MOST_HEADS:
            self._heads[length] = crc
        return right

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


def add_event(event: Event, scalars: dict[str, Columns], other: Callable[[Event], None]) -> None:
    """Add the scalars of an event to columns by tag, and pass it on if it contains anything else. If it discards steps,
    they are taken out of the columns."""
    step, wall_time, others = event.step, event.wall_time, event.WhichOneof("what") != "summary"
    for value in event.summary.value:
        found = number(value)
        if found is None:
            others = True
        elif (columns := _columns(scalars, value.tag[-MOST_LETTERS:])) is not None:
            columns.append(step, wall_time, found)
    if discards(event):
        for columns in scalars.values():
            columns.drop_from(step)
    if others:
        other(event)


def discards(event: Event) -> bool:
    """Return whether the program has restarted, so that all points at the event's step and later are void."""
    return event.WhichOneof("what") == "session_log" and event.session_log.status == SessionLog.START


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
    if tensor.dtype not in _TENSOR_FORMS:
        return None
    form, field = _TENSOR_FORMS[tensor.dtype]
    if tensor.tensor_content:
        return _unpacked(form, tensor.tensor_content)
    numbers = getattr(tensor, field)
    if not numbers:
        return None
    if field == "half_val":  # its bits
        return _unpacked(form, (numbers[0] & 0xFFFF).to_bytes(2, "little"))
    return float(numbers[0])


def _unpacked(form: str, content: bytes) -> float | None:
    """The number that bytes contain; None if they are too few or too many."""
    if form == _BFLOAT16:
        form, content = "<f", bytes(2) + content
    return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None


def _columns(scalars: dict[str, Columns], tag: str) -> Columns | None:
    """The columns of a tag; None if there are too many tags (one more than all, so that this can be told)."""
    columns = scalars.get(tag)
    if columns is None and len(scalars) <= MOST_SERIES:
        columns = scalars[tag] = Columns()
    return columns


def _place(rest: bytes, event: Event) -> tuple[int, struct.Struct] | None:
    """Return where the value of an event with one scalar is, and its form; None if it isn't that simple."""
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
    """Return whether the event's time, step and value can be replaced."""
    content = next(each[: form.size] for each in _PROBES if form.unpack(each[: form.size]) != (value,))
    head = struct.pack("<BdBB", _WALL_TIME, 1.5, _STEP, 77)
    try:
        probe = parsed(head + rest[:place] + content + rest[place + form.size :])
    except ValueError:
        return False
    return (probe.wall_time, probe.step, list(scalars_of(probe))) == (1.5, 77, [(tag, *form.unpack(content))])
