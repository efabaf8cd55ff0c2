"""What libraries log, in few lines: whoever can make a server log something must not be able to fill a disk with it."""

from __future__ import annotations

import contextlib
import logging
import sys
import time

from engine.runtime.text import printable

_EVERY_S = 60.0
_LONGEST = 200


class BriefLog(logging.Handler):
    """Writes records to stderr, each as one line without a traceback, the first at once and then one a minute;
    that one has the number of those left out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next, self._left_out = float("-inf"), 0

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        more = f" ({self._left_out:,} more since the last line)" if self._left_out else ""
        self._next, self._left_out = now + _EVERY_S, 0
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or its disk is full
            print(f"mario-tui: {printable(' '.join(text.split())[:_LONGEST])}{more}", file=sys.stderr, flush=True)
