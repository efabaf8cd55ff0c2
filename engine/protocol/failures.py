"""Turns an exception of a process into a `Failed` message."""

from __future__ import annotations

import traceback

from engine.errors import UserError
from engine.protocol.messages import Failed
from engine.runtime.text import printable
from engine.runtime.users_code import place_of


class HopelessError(Exception):
    """Training can't continue, and a restart from the last checkpoint would fail the same way."""


def describe(error: BaseException) -> Failed:
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
