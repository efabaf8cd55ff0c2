"""What a terminal shows that has no room for anything else."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Static

from mario_tui.screens.base import Modal

LEAST = Size(40, 12)
"""Columns and rows that every screen gets along with."""


def too_small(size: Size) -> bool:
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmallScreen(Modal[None]):
    """Lies over everything for as long as the terminal is too small."""

    BINDINGS = [Binding("q", "app.quit", "Leave")]

    def compose(self) -> ComposeResult:
        yield Static(id="too-small")

    def on_resize(self, event: Resize) -> None:
        self.query_one("#too-small", Static).update(
            Text(
                f"{event.size.width}x{event.size.height} is too small; {LEAST.width}x{LEAST.height} is enough.\n"
                "Runs go on. q: leave",
                justify="center",
            )
        )
