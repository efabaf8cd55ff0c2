"""Keeps a library from taking over this process's signals."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handlers of SIGTERM and SIGINT, which the code inside may replace."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
