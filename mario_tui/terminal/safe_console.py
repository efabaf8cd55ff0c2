"""What Rich prints holds no control sequence but its own; imports without Textual, which scripts need not wait for."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engine.runtime.text import drawable


class SafeConsole(Console):
    """Rich's console; what it prints by itself, colours and movements of the cursor, stays."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(_drawable_lines(segment.text), segment.style)


def _drawable_lines(text: str) -> str:
    return "\n".join(drawable(line) for line in text.split("\n"))
