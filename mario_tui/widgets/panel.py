"""What all text panels have in common."""

from __future__ import annotations

from rich.text import Text
from textual.events import Resize
from textual.widgets import Static

from mario_tui.feed import Snapshot


class Panel(Static):
    """A titled box of text made from a snapshot by `compose_text`.

    Refreshing an unchanged widget would send all its cells over the link again, so equal text is not set twice.
    """

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id, classes="panel")
        self.border_title = title
        self._shown: Text | None = None
        self._snapshot = Snapshot()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        self._snapshot = snapshot
        text = self.compose_text(snapshot, self.content_size.width or 40)
        if text != self._shown:
            self._shown = text
            self.update(text)

    def on_resize(self, event: Resize) -> None:
        self.show(self._snapshot)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        """The panel's content for a width in cells."""
        raise NotImplementedError


def bar(share: float, width: int) -> str:
    """A horizontal bar with eighths of cells."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(values: list[float], width: int) -> str:
    """The last values as block characters, lowest to highest."""
    values = values[-width:]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int((value - low) / span * 8))] for value in values)
