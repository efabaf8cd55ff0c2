"""Reads the recording that a host leaves in its run's folder; a dashboard shows it after the host has ended."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import msgspec

from engine.errors import UserError
from engine.protocol.framing import MAX_MESSAGE_BYTES, decode_event, read_message
from engine.protocol.messages import Event
from engine.runtime.files import read_bounded

_MAX_RECORDED_BYTES = 2 * MAX_MESSAGE_BYTES


def read_recording(path: Path) -> list[Event]:
    """Read the events of a recording; the file has the format of the host's protocol.

    Raises `UserError` if the file can't be read or is not a recording.
    """
    events: list[Event] = []
    try:
        file = io.BytesIO(read_bounded(path, _MAX_RECORDED_BYTES))
        with contextlib.suppress(EOFError):
            while True:
                events.append(read_message(file, decode_event))
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise UserError(f"{path}: not a recording of mario-tui ({error})") from None
    return events
