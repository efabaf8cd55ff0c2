"""Base class of panels with more lines than fit: the same keys and the mouse wheel move in all of them."""

from __future__ import annotations

from textual.binding import Binding
from textual.events import MouseScrollDown, MouseScrollUp

from mario_tui.widgets.base.line_widget import LineWidget

_WHEEL_LINES = 3


class MovableLines(LineWidget):
    """Subclasses implement `action_move` and `action_page`. Numbers below 0 go up, and may be larger than the panel.

    Beside another panel class this one comes second, because Textual takes styles only from the first base.
    """

    BINDINGS = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]

    def action_move(self, lines: int) -> None:
        """Move by some lines."""
        raise NotImplementedError

    def action_page(self, pages: int) -> None:
        """Move by what fits into the panel."""
        raise NotImplementedError

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.action_move(-_WHEEL_LINES)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.action_move(_WHEEL_LINES)
