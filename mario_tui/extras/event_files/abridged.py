"""Events that are too long to be parsed, of images, graphs and the like, without their contents.

Only the fields' heads are read, by hopping from one to the next, so a record of gigabytes takes a few small reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_EVENT: Mapping[int, Any] = {5: {1: {4: {}, 6: {}, 8: {}}}}
"""By number, the fields of an event that are abridged themselves: summary, value; image, audio and tensor."""
_MOST_FIELDS = 2**18
_MOST_IN_ALL = 2**23
_MOST_BYTES = 4096
"""A longer field is left empty."""
_HEAD_BYTES = 20
"""Two varints: key and length, or key and number."""
_FIXED = {1: 8, 5: 4}
"""Length of a field by its wire type: double, float."""


class Abridged:
    """A serialised event between two places of a file; `read` gets a place and a number of bytes.

    Raises `ValueError` if it is none, or still too long.
    """

    def __init__(self, read: Callable[[int, int], bytes], begin: int, end: int) -> None:
        self._read = read
        self._fields = 0
        self.data = self._message(begin, end, _EVENT)
        """The event, serialised again."""

    def _message(self, at: int, end: int, nested: Mapping[int, Any]) -> bytes:
        short = bytearray()
        while at < end:
            self._fields += 1
            head = self._read(at, min(_HEAD_BYTES, end - at))
            try:
                key, used = _varint(head, 0)
                if key & 7 == 2:
                    length, used = _varint(head, used)
                else:
                    length = _FIXED[key & 7] if key & 7 else _varint(head, used)[1] - used
            except (IndexError, KeyError):
                raise ValueError("not a TensorBoard event") from None
            begin, at = at + used, at + used + length
            if at > end or not key >> 3:
                raise ValueError("not a TensorBoard event")
            if key >> 3 in nested and key & 7 == 2:
                content = self._message(begin, at, nested[key >> 3])
            else:
                content = self._read(begin, length) if length <= _MOST_BYTES else b""
            short += _as_varint(key) + (_as_varint(len(content)) if key & 7 == 2 else b"") + content
            if self._fields > _MOST_FIELDS or len(short) > _MOST_IN_ALL:
                raise ValueError("an event with too many summaries")
        return bytes(short)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it. Raises `IndexError` if it has no end."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _as_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))
