"""What the line to the terminal takes: pictures are left out while it is behind, and fewer of them are asked for."""

from __future__ import annotations

import contextlib
import os
import signal
from queue import Full
from types import FrameType
from typing import Any

from textual.app import App

_WINDOW_S = 3.0
_TOO_MANY_LEFT_OUT = 0.25


def busy(app: App[Any]) -> bool:
    """Whether something that was drawn earlier still waits to be written.

    Textual's writer thread takes from a bounded queue, and who fills that blocks the whole application.
    """
    queue = getattr(getattr(app._driver, "_writer_thread", None), "_queue", None)
    return queue is not None and not queue.empty()


def survive_hang_up(app: App[Any]) -> None:
    """Let the program end although its terminal is gone.

    A hang-up comes with SIGCONT, at which Textual starts its threads a second time; and its writer thread dies of the
    first error, while the shutdown writes more than the queue holds and would wait for ever.
    """
    driver = app._driver
    writer = getattr(driver, "_writer_thread", None)
    queue = getattr(writer, "_queue", None)
    if writer is None or queue is None or "stop" in vars(writer):
        return  # not started yet, a driver without one, or done already

    def write(text: str | None) -> None:
        while writer.is_alive():
            with contextlib.suppress(Full):
                queue.put(text, timeout=0.1)
                return

    def stop() -> None:
        write(None)
        writer.join()

    resume = signal.getsignal(signal.SIGCONT)

    def resumed(number: int, frame: FrameType | None) -> None:
        if callable(resume) and os.isatty(writer.fileno()):
            resume(number, frame)

    writer.write, writer.stop = write, stop
    signal.signal(signal.SIGCONT, resumed)


class Pace:
    """Pictures a second, between one and `most`, from how many of those offered had to be left out."""

    def __init__(self, most: float) -> None:
        self.most = self.fps = most
        self._since: float | None = None
        self._offered = self._left_out = 0

    def offered(self, left_out: bool, now: float) -> bool:
        """Count a picture; whether `fps` was changed by it. `now` in seconds of any clock."""
        self._since = now if self._since is None else self._since
        self._offered += 1
        self._left_out += left_out
        if now - self._since < _WINDOW_S or self._offered < 3:
            return False
        share = self._left_out / self._offered
        self._since, self._offered, self._left_out = now, 0, 0
        before = self.fps
        if share > _TOO_MANY_LEFT_OUT:
            self.fps = max(1.0, self.fps / 2)
        elif share == 0:
            self.fps = min(self.most, self.fps * 1.5)
        return self.fps != before
