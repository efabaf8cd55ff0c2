"""A failure as a message."""

from __future__ import annotations

import traceback

from engine.errors import UserError
from engine.protocol.messages import Failed
from engine.runtime.text import printable


class HopelessError(Exception):
    """Training can't go on, and beginning again from the last checkpoint would only end the same way."""


def describe(error: BaseException) -> Failed:
    """A failure as a message."""
    usage = isinstance(error, UserError)
    reason = str(error) if usage else printable(f"{type(error).__name__}: {error}".split("\n")[0])
    return Failed(
        reason=reason,
        traceback=traceback.format_exc(),
        log_path="",
        checkpoint=None,
        usage=usage,
        final=usage or isinstance(error, HopelessError),
    )
