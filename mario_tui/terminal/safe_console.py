"""A Rich console that strips foreign control sequences. It does not import Textual, so that scripts start fast."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
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
                yield Segment(_drawable_lines(segment.text), segment.style)


def _drawable_lines(text: str) -> str:
    return "\n".join(drawable(line) for line in text.split("\n"))
