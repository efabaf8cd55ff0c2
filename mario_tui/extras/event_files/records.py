"""The records of which an event file consists: length (uint64), its checksum, the data (a serialised `Event`), its
checksum, all little-endian. The checksums are masked CRC-32C, as TensorFlow's TFRecord defines them."""

from __future__ import annotations

import struct

from google_crc32c import extend, value
from tensorboard.compat.proto.event_pb2 import Event

HEAD_BYTES = 12
RECORD_BYTES = HEAD_BYTES + 4
"""What a record takes beside its data."""
MASK, MASK_DELTA = 0xFFFFFFFF, 0xA282EAD8
NO_EVENTS = "not a TensorBoard event file"
_MAX_LENGTH = 2**31 - 1
"""Protobuf serialises nothing longer."""
_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")


def masked(crc: int) -> int:
    """The form of a CRC that a file contains."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & MASK


def framed(data: bytes) -> bytes:
    """A record with this data."""
    head = struct.pack("<Q", len(data))
    return head + _FOOT.pack(masked(value(head))) + data + _FOOT.pack(masked(value(data)))


def length_of(head: bytes, place: int) -> int:
    """Length of the data of a record by its first bytes. Raises `ValueError` if no record begins with them.

    Args:
        place: where the record is in the file.
    """
    length, crc = _HEAD.unpack_from(head)
    if crc != masked(value(head[:8])) or length > _MAX_LENGTH:
        raise _damaged(place) if place else ValueError(NO_EVENTS)
    return int(length)


def is_unwritten(ahead: bytes, place: int) -> bool:
    """Return whether only zeros follow in the file: on a network file system, or if a program reserves space, a file
    may have its length before its data. Raises `ValueError` if there is nothing else in the file."""
    if ahead.strip(b"\0"):
        return False
    if not place:
        raise ValueError(f"{NO_EVENTS} yet: it contains only zeros")
    return True


def event_in(data: bytes, stored: bytes, place: int) -> Event:
    """The event in a record. Raises `ValueError` if the stored checksum is another one, or if it is no event."""
    if stored != _FOOT.pack(masked(value(data))):
        raise _damaged(place)
    return parsed(data)


def parsed(data: bytes) -> Event:
    """Raises `ValueError` if it is not a serialised `Event`."""
    try:
        return Event.FromString(data)
    except Exception as error:  # protobuf's DecodeError is a different class in each implementation
        raise ValueError(f"not a TensorBoard event ({error})") from None


class Checksum:
    """The checksum of data that is read piece by piece."""

    def __init__(self) -> None:
        self._crc = self.length = 0
        """Number of bytes so far."""

    def add(self, data: bytes) -> None:
        self._crc = extend(self._crc, data)
        self.length += len(data)

    def compare(self, stored: bytes, place: int) -> None:
        """Raise `ValueError` if the record at a place of the file has another one."""
        if stored != _FOOT.pack(masked(self._crc)):
            raise _damaged(place)


def _damaged(place: int) -> ValueError:
    return ValueError(f"damaged at byte {place:,}: wrong checksum")
