"""Panels that show text made from a snapshot, with bars and sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from mario_tui.data.feed import Snapshot
from mario_tui.data.format import fraction
from mario_tui.widgets.base.line_widget import LineWidget


class Panel(LineWidget):
    """Subclasses implement `compose_text`, and `is_needed` if they are hidden in some runs."""

    def __init__(self, title: str, *, id: str, number: int = 0, classes: str = "panel") -> None:
        super().__init__(title, id=id, number=number, classes=classes)
        self._snapshot = Snapshot()
        self._natural = self._laid_out = 0  # lines
        self._drawn: object = None  # content of the lines; converting text to lines is expensive
        self.set_class(not self.is_needed(self._snapshot), "-off")

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        self._snapshot = snapshot
        self.set_class(not self.is_needed(snapshot), "-off")
        self.repaint()
        if self._natural != self._laid_out and self.styles.is_auto_height:
            self.refresh(layout=True)

    def repaint(self) -> None:
        width, height = self.body
        if height:
            text = self.compose_text(self._snapshot, width)
            self._natural = text.plain.count("\n") + 1
            note = self.note()
            drawn = text, text.style, note, self.body
            if drawn != self._drawn or not self._lines:
                self._drawn = drawn
                self.paint(self.text_lines(text, width), note=note)

    def is_needed(self, snapshot: Snapshot) -> bool:
        """Whether there is anything to show in such a run."""
        return True

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        """The panel's content for a width in cells."""
        raise NotImplementedError

    def note(self) -> str:
        """Text at the right end of the rule."""
        return ""

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """Height for the style `height: auto`: the number of lines."""
        self._natural = self.compose_text(self._snapshot, max(1, width - 2)).plain.count("\n") + 1
        self._laid_out = self._natural
        return self._natural + self.framed


def bar(share: float, width: int) -> str:
    """A horizontal bar with a resolution of an eighth of a cell."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8) if math.isfinite(share) else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "·")


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """The last `width` values as block characters, scaled to their range or to the bounds; blank if not finite."""
    values = values[-width:]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite) if low is None else low, max(finite) if high is None else high
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(
        blocks[min(7, int(fraction(value - low, high - low) * 8))] if math.isfinite(value) else " " for value in values
    )
