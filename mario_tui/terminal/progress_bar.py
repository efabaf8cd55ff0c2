"""A progress bar on standard error, for commands that print a result."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol

from rich.markup import escape
from rich.progress import Progress

from mario_tui.terminal.safe_console import SafeConsole


class MoveBar(Protocol):
    """Moves a progress bar, and replaces the text before it if one is given."""

    def __call__(self, completed: float, text: str | None = None, /) -> object: ...


@contextlib.contextmanager
def progress_bar(text: str, total: float | None) -> Iterator[MoveBar]:
    """A progress bar on standard error, which pulses if the `total` is not known. Nothing is written where nobody
    sees a bar move, whatever the environment (`FORCE_COLOR`) tells Rich."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda completed, text=None: None
        return
    # Lines that are printed meanwhile go above the bar, unless standard output leads elsewhere.
    to_same = sys.stdout.isatty()
    with Progress(console=SafeConsole(stderr=True), transient=True, redirect_stdout=to_same) as progress:
        task = progress.add_task(escape(text), total=total)
        yield lambda completed, text=None: progress.update(
            task, completed=completed, description=None if text is None else escape(text)
        )
