"""What is drawn holds no control sequence but our own, whatever the strings on the screen say: names of runs, reasons,
log lines, tags of event files. One filter for everything that Textual draws, one for what Rich prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from engine.text import drawable, printable

Result = TypeVar("Result")


class DrawableOnly(LineFilter):
    """Textual keeps what it makes of a line: only lines that changed come here."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for segment in segments:
            if not segment.text.isprintable():
                return [Segment(drawable(text), style, control) for text, style, control in segments]
        return segments


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


class SafeApp(App[Result]):
    """The base of our applications."""

    _drawable_only = DrawableOnly()

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.error_console = SafeConsole(markup=False, highlight=False, stderr=True)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [self._drawable_only, *super().get_line_filters()]

    def copy_to_clipboard(self, text: str) -> None:
        """As one line: what is pasted into a shell must not act before it was read."""
        super().copy_to_clipboard(printable(text))
