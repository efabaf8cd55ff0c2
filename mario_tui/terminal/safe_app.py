"""A Textual app that strips foreign control sequences from all it draws: names of runs, reasons, log lines, tags."""

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
    """Makes every character of a line printable. Textual caches lines, so only changed ones are filtered."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        for segment in segments:
            if not segment.text.isprintable():
                return [Segment(drawable(text), style, control) for text, style, control in segments]
        return segments


class SafeApp(App[Result]):
    """Base class of the applications."""

    _drawable_only = DrawableOnly()

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.error_console = SafeConsole(markup=False, highlight=False, stderr=True)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [self._drawable_only, *super().get_line_filters()]

    def copy_to_clipboard(self, text: str) -> None:
        """Copy as one line: text pasted into a shell must not run before the user presses Enter."""
        super().copy_to_clipboard(printable(text))
