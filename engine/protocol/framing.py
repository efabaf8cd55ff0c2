"""Messages on a stream: 4 bytes of length (big-endian), then MessagePack; and the message that a failure becomes.

Decoding never executes code, and decoders raise `ValueError` for any bytes that are not a message.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable
from typing import IO, TypeVar

import msgspec

from engine.errors import UserError
from engine.protocol.commands import Command, Message, bounded
from engine.protocol.messages import Event, Failed, Hello, Report
from engine.protocol.results import Answer, PlayCommand
from engine.protocol.sinks import SinkEvent
from engine.runtime.text import place_of, printable

M = TypeVar("M")

MAX_MESSAGE_BYTES = 64 * 2**20
MAX_COMMAND_BYTES = 2**16
encode = msgspec.msgpack.Encoder().encode
"""A message as MessagePack, without the length prefix."""
_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size


class GreetingHead(Message, frozen=True, tag=Hello.__name__):
    """The part of a greeting that every version can read."""

    protocol: int
    game: str = ""


class CutOffError(ValueError):
    """The stream has ended in the middle of a message."""


decode_command = bounded(msgspec.msgpack.Decoder(Command).decode)
decode_greeting_head = bounded(msgspec.msgpack.Decoder(GreetingHead).decode)
decode_event = bounded(msgspec.msgpack.Decoder(Event).decode)
decode_answer = bounded(msgspec.msgpack.Decoder(Answer).decode)
decode_play_command = bounded(msgspec.msgpack.Decoder(PlayCommand).decode)
decode_report = bounded(msgspec.msgpack.Decoder(Report).decode)
decode_sink_event = bounded(msgspec.msgpack.Decoder(SinkEvent).decode)


def pack(message: Message) -> bytes:
    """A message as sent on a stream: 4 bytes of length (big-endian), then MessagePack."""
    body = encode(message)
    return _HEADER.pack(len(body)) + body


def body_length(header: bytes, most: int = MAX_MESSAGE_BYTES) -> int:
    """Length in bytes of the message after a header. Raises `ValueError` if it exceeds `most`."""
    (length,) = _HEADER.unpack(header)
    if length > most:
        raise ValueError(f"message must be at most {most} bytes, got {length}")
    return int(length)


def read_message(stream: IO[bytes], decode: Callable[[bytes], M], most: int = MAX_MESSAGE_BYTES) -> M:
    """The next message of at most `most` bytes of a buffered stream; blocks until it is complete.

    Raises `EOFError` at the end of the stream, `CutOffError` if that is in the middle of a message, `ValueError` for
    what is not one.
    """
    header = stream.read(HEADER_BYTES)
    if not header:
        raise EOFError
    if len(header) < HEADER_BYTES:
        raise CutOffError("cut off")
    body = stream.read(length := body_length(header, most))
    if len(body) < length:
        raise CutOffError("cut off")
    return decode(body)


class HopelessError(Exception):
    """Training can't continue, and a restart from the last checkpoint would fail the same way."""


def failure_of(error: BaseException) -> Failed:
    """The `Failed` message for an exception. A user's error needs no traceback."""
    usage = isinstance(error, UserError)
    told = usage or isinstance(error, HopelessError)  # whose text is for people
    reason = str(error) if told else f"{type(error).__name__}: {error}".split("\n")[0] + place_of(error)
    return Failed(
        reason=printable(reason),
        traceback="" if usage else printable("".join(traceback.format_exception(error)), lines=True),
        usage=usage,
        final=usage or isinstance(error, HopelessError),
    )
