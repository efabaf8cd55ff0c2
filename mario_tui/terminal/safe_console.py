"""A Rich console that strips foreign control sequences. It does not import Textual, so that scripts start fast."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engine.runtime.text import drawable


class SafeConsole(Console):
    """Rich's console; its own control codes (colours, cursor movements) are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(_drawable_lines(segment.text), segment.style)


def _drawable_lines(text: str) -> str:
    return "\n".join(drawable(line) for line in text.split("\n"))
