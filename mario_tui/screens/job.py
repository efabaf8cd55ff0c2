"""Work of a screen that may take long: it runs in a thread, and a line shows how far it is."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import Static

from engine.runtime.text import printable

_PATIENCE_S = 0.3
"""Work that is done by then shows no line."""
_TICK_S = 0.1


class Cancelled(Exception):
    """The user has cancelled the work."""


class Job(Static):
    """One piece of work, as a line above the footer. Its thread calls `progress`, everything else is the screen's."""

    def __init__(self, what: str) -> None:
        super().__init__(classes="job")
        self._what = what
        self._done = 0.0
        self._began = time.monotonic()
        self._cancelled = False

    def progress(self, done: float) -> None:
        """Note the fraction done. Raises `Cancelled` if the work is no longer wanted."""
        self._done = done
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """End the work as soon as it makes progress."""
        self._cancelled = True

    def on_mount(self) -> None:
        self.display = False
        self.set_interval(_TICK_S, self._show)

    def _show(self) -> None:
        self.display = time.monotonic() >= self._began + _PATIENCE_S
        share = f": {self._done:.0%}" if self._done else ""
        how = "cancelling" if self._cancelled else "esc: cancel"
        self.update(Text(printable(f"{self._what}{share}  ·  {how}"), no_wrap=True, overflow="ellipsis"))
