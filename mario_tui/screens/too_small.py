"""The notice for a terminal that is too small."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Static

from mario_tui.screens.base import Modal

LEAST = Size(40, 12)
"""Smallest supported size, in columns and rows."""


def too_small(size: Size) -> bool:
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmallScreen(Modal[None]):
    """Covers all screens while the terminal is too small."""

    BINDINGS = [Binding("q", "app.quit", "Quit")]

    def compose(self) -> ComposeResult:
        yield Static(id="too-small")

    def on_resize(self, event: Resize) -> None:
        self.query_one("#too-small", Static).update(
            Text(
                f"The terminal must be at least {LEAST.width}x{LEAST.height}, got "
                f"{event.size.width}x{event.size.height}.\nRuns keep running. q: quit",
                justify="center",
            )
        )
