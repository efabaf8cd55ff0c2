"""How processes end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


def how_it_ended(code: int | None) -> str:
    """In words, the exit code of `multiprocessing` or `subprocess`: negative ones are signals."""
    if code is None or code >= 0:
        return f"exit status {code}"
    named = {number.value: number.name for number in signal.Signals}  # real-time signals have no names
    return f"killed by {named.get(-code, f'signal {-code}')}"


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
