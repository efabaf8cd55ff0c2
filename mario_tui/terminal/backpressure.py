"""Adapts to a slow terminal link: frames are dropped while output is queued, and fewer are requested."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from queue import Full
from types import FrameType
from typing import Any

from textual.app import App

from mario_tui.terminal.internals import waiting_output, writer_of

_WINDOW_S = 3.0
_MAX_DROPPED_SHARE = 0.25


def busy(app: App[Any]) -> bool:
    """Whether earlier output is still waiting to be written."""
    writer = writer_of(app)
    return writer is not None and not waiting_output(writer).empty()


def slow(app: App[Any]) -> bool:
    """Whether output waits because the terminal takes no more; on a busy machine, it also waits for its thread."""
    writer = writer_of(app)
    return writer is not None and busy(app) and is_full(writer.fileno())


def is_full(file: int) -> bool:
    """Whether a terminal takes no more at the moment."""
    try:
        return not select.select([], [file], [], 0)[1]
    except (OSError, ValueError):  # it is gone
        return False


def survive_hang_up(app: App[Any]) -> None:
    """Let the program exit after its terminal is gone.

    A hang-up comes with SIGCONT, on which Textual starts its threads a second time. Its writer thread ends at the first
    error, while the shutdown writes more than the queue holds and would wait forever.
    """
    writer = writer_of(app)
    if writer is None or "stop" in vars(writer):  # already patched
        return

    def write(text: str | None) -> None:
        while writer.is_alive():
            with contextlib.suppress(Full):
                waiting_output(writer).put(text, timeout=0.1)
                return

    def stop() -> None:
        write(None)
        writer.join()

    resume = signal.getsignal(signal.SIGCONT)

    def resumed(number: int, frame: FrameType | None) -> None:
        if callable(resume) and os.isatty(writer.fileno()):
            resume(number, frame)

    writer.write, writer.stop = write, stop  # type: ignore[method-assign]
    signal.signal(signal.SIGCONT, resumed)


class Pace:
    """Frame rate of the game view, between 1 and `most` frames per second, from the share of dropped frames."""

    def __init__(self, most: float) -> None:
        self.most = self.fps = most
        self._since: float | None = None
        self._offered = self._dropped = 0

    def offered(self, dropped: bool, now: float) -> bool:
        """Count a frame; returns whether `fps` changed. `now`: seconds of any clock."""
        self._since = now if self._since is None else self._since
        self._offered += 1
        self._dropped += dropped
        if now - self._since < _WINDOW_S or self._offered < 3:
            return False
        share = self._dropped / self._offered
        self._since, self._offered, self._dropped = now, 0, 0
        before = self.fps
        if share > _MAX_DROPPED_SHARE:
            self.fps = max(1.0, self.fps / 2)
        elif share == 0:
            self.fps = min(self.most, self.fps * 1.5)
        return self.fps != before
