"""Handlers of signals for the time of a block."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None
"""A function, `signal.SIG_IGN`, `signal.SIG_DFL`, or what `signal.getsignal` returns."""


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Set these handlers in the block, and restore those from before after it. Only the main thread can."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def exits_on_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise `SystemExit`, so that cleanup runs as after Ctrl-C."""
    with handling({signal.SIGTERM: _exit, signal.SIGHUP: _exit}):
        yield


def _exit(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
