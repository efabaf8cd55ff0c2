"""Reads the recording that a host leaves in its run's folder; a dashboard shows it after the host has ended.

Another version of mario-tui may have written it, with events that this one does not know. They are left out.
"""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path

import msgspec

from engine.errors import UserError
from engine.protocol.commands import bounded
from engine.protocol.framing import decode_event, read_message
from engine.protocol.messages import Event, Hello, KeptEvent, Log
from engine.runtime.files import read_bounded

_MAX_RECORDED_BYTES = 2**24
"""Those that we write have at most about 2 MB."""


class _Greeting(Hello, frozen=True, tag="Hello"):
    """A `Hello` whose events are not decoded yet."""

    events: list[msgspec.Raw]  # type: ignore[assignment]


_decode_greeting = bounded(msgspec.msgpack.Decoder(_Greeting).decode)
_decode_kept = bounded(msgspec.msgpack.Decoder(KeptEvent).decode)


def read_recording(path: Path) -> list[Event]:
    """Read the events of a recording; the file has the format of the host's protocol. If some of them are left out,
    the log in it says so.

    Raises `UserError` if the file can't be read or is not a recording.
    """
    return read_known(path)[0]


def read_known(path: Path) -> tuple[list[Event], int]:
    """The same, and the number of events that were left out."""
    events: list[Event] = []
    unknown = 0
    try:
        file = io.BytesIO(read_bounded(path, _MAX_RECORDED_BYTES))
        with contextlib.suppress(EOFError):
            while True:
                body = read_message(file, bytes)
                try:
                    events.append(decode_event(body))
                except msgspec.ValidationError:
                    known, left_out = ([], 1) if events else _known_in(body)
                    events, unknown = events + known, unknown + left_out
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"{path}: not a recording of mario-tui ({error})") from None
    if unknown and isinstance(hello := events[0], Hello):
        events[0] = msgspec.structs.replace(hello, events=[*hello.events, _warning(unknown)])
    return events, unknown


def _known_in(body: bytes) -> tuple[list[Event], int]:
    """The first event of a recording with the known ones of the events in it, and the number of the others."""
    greeting = _decode_greeting(body)
    known: list[KeptEvent] = []
    for each in greeting.events:
        with contextlib.suppress(msgspec.ValidationError):
            known.append(_decode_kept(each))
    fields = {name: getattr(greeting, name) for name in Hello.__struct_fields__}
    return [Hello(**fields | {"events": known})], len(greeting.events) - len(known)


def _warning(count: int) -> Log:
    text = f"{count:,} recorded event{'s'[: count != 1]} of another version of mario-tui can't be shown"
    return Log(at=time.time(), level="warning", text=text)
