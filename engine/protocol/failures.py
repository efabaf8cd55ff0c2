"""Turns an exception of a process into a `Failed` message."""

from __future__ import annotations

import traceback

from engine.errors import UserError
from engine.protocol.messages import Failed
from engine.runtime.text import printable


class HopelessError(Exception):
    """Training can't continue, and a restart from the last checkpoint would fail the same way."""


def describe(error: BaseException) -> Failed:
    """The `Failed` message for an exception. A user's error needs no traceback."""
    usage = isinstance(error, UserError)
    told = usage or isinstance(error, HopelessError)  # whose text is for people
    reason = printable(str(error) if told else f"{type(error).__name__}: {error}".split("\n")[0])
    return Failed(
        reason=reason,
        traceback="" if usage else printable("".join(traceback.format_exception(error)), lines=True),
        usage=usage,
        final=usage or isinstance(error, HopelessError),
    )
