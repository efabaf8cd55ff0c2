"""Output that nobody reads any more."""

from __future__ import annotations

import os
from typing import TextIO


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
