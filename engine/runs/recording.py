"""The recording that a host leaves in its run's folder: what a dashboard shows when the host is gone."""

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
    """Events stored as they go over the wire, as the host leaves them in a run's folder.

    Raises `UserError` if the file is not such a recording.
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
