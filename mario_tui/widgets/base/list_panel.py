"""Base class of panels that are lists with a cursor. Only visible rows are drawn, so the cost does not grow with the
number of rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual.message import Message

from mario_tui.widgets.base.movable_lines import MovableLines


class ListPanel(MovableLines):
    """Subclasses implement `keys`. The cursor stays on its row, by the row's key, when the order changes."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(self, title: str, *, id: str, number: int) -> None:
        super().__init__(title, id=id, number=number)
        self._cursor: Hashable = None
        self._top = 0

    def keys(self) -> Sequence[Hashable]:
        """The keys of all rows, in their order."""
        raise NotImplementedError

    @property
    def index(self) -> int:
        """The row of the cursor; the first one if its row is gone."""
        return next((index for index, key in enumerate(self.keys()) if key == self._cursor), 0)

    def rows_to_draw(self, rows: int) -> range:
        """The rows that are visible if there is room for `rows`; the cursor is one of them."""
        keys = self.keys()
        if self._cursor is None and keys:
            self._cursor = keys[0]
        count, index = len(keys), self.index
        self._top = max(0, min(self._top, count - rows, index), index - rows + 1)
        return range(self._top, min(self._top + rows, count))

    def position(self, shown: range) -> str:
        """`3–12 of 40`; empty if all rows are visible."""
        count = len(self.keys())
        return "" if len(shown) >= count else f"{shown.start + 1}–{shown.stop} of {count}"

    def go(self, index: int) -> None:
        """Move the cursor to a row, or to the nearest one that exists."""
        keys = self.keys()
        if keys:
            self._cursor = keys[min(max(index, 0), len(keys) - 1)]
            self.repaint()

    def action_move(self, lines: int) -> None:
        self.go(self.index + lines)

    def action_page(self, pages: int) -> None:
        self.go(self.index + pages * max(1, self.body[1] - 2))
