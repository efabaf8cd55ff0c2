"""The base class of every message between the processes of a run, its clients and the engine's commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base class of all messages: immutable, tagged with the class name."""


def bounded(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A decoder of msgspec's that raises `msgspec.DecodeError`, as for other invalid data, if it is nested too deeply.

    Also fields that a message doesn't have are read, so any message can be.
    """

    def decode_bounded(data: bytes) -> T:
        try:
            return decode(data)
        except RecursionError:
            raise msgspec.DecodeError("nested too deeply") from None

    return decode_bounded
