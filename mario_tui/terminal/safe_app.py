"""What Textual draws holds no control sequence but its own, whatever the strings on the screen say: names of runs,
reasons, log lines, tags of event files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from engine.runtime.text import drawable, printable
from mario_tui.terminal.safe_console import SafeConsole

Result = TypeVar("Result")


class DrawableOnly(LineFilter):
    """Textual keeps what it makes of a line: only lines that changed come here."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for segment in segments:
            if not segment.text.isprintable():
                return [Segment(drawable(text), style, control) for text, style, control in segments]
        return segments


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
