"""How processes end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


def how_it_ended(code: int | None) -> str:
    """In words, the exit code of `multiprocessing` or `subprocess`: negative ones are signals."""
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"


@contextlib.contextmanager
def exits_on_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise `SystemExit`, so that cleanup runs as after Ctrl-C."""
    before = {number: signal.signal(number, _exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
