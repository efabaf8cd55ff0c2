"""Output that nobody reads any more, or that does not fit on its disk."""

from __future__ import annotations

import errno
import os
import select
from typing import TextIO

NO_SPACE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
"""Errors of a write whose disk, quota or file size is exhausted."""


def nowhere() -> TextIO:
    """A stream whose output nobody gets."""
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def discard_output(*streams: TextIO) -> None:
    """Send what these streams still hold, and all that follows, to nowhere."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def discard_unwritable(*streams: TextIO) -> None:
    """Discard what can't be written any more. At its end Python would try again, and exit with status 120."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:  # the terminal hung up, or the reader closed the pipe
            discard_output(stream)


def is_full(file: int) -> bool:
    """Return whether a terminal takes no more at the moment."""
    try:
        return not select.select([], [file], [], 0)[1]
    except (OSError, ValueError):  # it is gone
        return False
