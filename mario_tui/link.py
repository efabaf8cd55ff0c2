"""What the line to the terminal takes: pictures are left out while it is behind, and fewer of them are asked for."""

from __future__ import annotations

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
