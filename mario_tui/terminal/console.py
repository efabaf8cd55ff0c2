"""A Rich console that strips foreign control sequences, and a progress bar on standard error.

Textual is not imported here, so that scripts start fast.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment

from engine.runtime.text import drawable


class SafeConsole(Console):
    """Rich's console; its own control codes (colours, cursor movements) are kept.

    It writes to the stream below `printable_stream`. Rich looks for that stream at each write, but finds the outer one
    while a progress bar has replaced `sys.stdout`; the bar's control codes were then shown as text.
    """

    def __init__(self, *, file: IO[str] | None = None, stderr: bool = False, **options: Any) -> None:
        stream = file or (sys.stderr if stderr else sys.stdout)
        super().__init__(file=getattr(stream, "rich_proxied_file", stream), stderr=stderr, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment("\n".join(map(drawable, segment.text.split("\n"))), segment.style)


def can_move(stream: IO[str]) -> bool:
    """Return whether a bar moves on a stream: Rich draws none on a terminal that can't move its cursor."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


@contextlib.contextmanager
def progress_bar(text: str, total: float | None) -> Iterator[Callable[..., object]]:
    """A progress bar on standard error, which pulses if the `total` is not known. Nothing is written where nobody
    sees a bar move, whatever the environment (`FORCE_COLOR`) tells Rich.

    Yields what moves it: called with what is completed and, if the text before it changes, with that.
    """
    if not can_move(sys.stderr):
        yield lambda completed, text=None: None
        return
    # Lines that are printed meanwhile go above the bar, unless standard output leads elsewhere.
    to_same = sys.stdout.isatty()
    with Progress(console=SafeConsole(stderr=True), transient=True, redirect_stdout=to_same) as progress:
        task = progress.add_task(escape(text), total=total)
        yield lambda completed, text=None: progress.update(
            task, completed=completed, description=None if text is None else escape(text)
        )
