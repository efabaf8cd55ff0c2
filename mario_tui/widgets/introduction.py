"""The panels explained, over the first dashboard that somebody sees."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from mario_tui.data.introduction import PANELS


class Introduction(Static):
    """Closes on the next key press."""

    def __init__(self, help_key: str, game_key: str) -> None:
        panels = Table.grid(padding=(0, 2))
        for title, text in PANELS.items():
            panels.add_row(Text(title, style="bold"), text)
        end = f"any key closes this   {help_key}: the same with all keys   {game_key}: the game"
        super().__init__(Group(panels, Text(end, style="dim")), id="introduction")
        self.border_title = "What you see"
