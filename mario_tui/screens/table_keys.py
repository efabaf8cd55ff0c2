"""Keys of a screen whose table has marks and can be sorted."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.base.marked_table import MarkedTable

NUMBERS: list[BindingType] = [Binding(str(n), f"sort_by({n})", show=False) for n in range(1, 10)]
"""Of the columns."""


class TableKeys(PlaceScreen[None]):
    """Enter on a row does the action `open`."""

    @property
    @abstractmethod
    def table(self) -> MarkedTable[Any]:
        """The table that the keys act on."""

    def action_down(self) -> None:
        self.table.action_cursor_down()

    def action_up(self) -> None:
        self.table.action_cursor_up()

    def action_first(self) -> None:
        self.table.move_cursor(row=0)

    def action_last(self) -> None:
        self.table.move_cursor(row=self.table.row_count - 1)

    def action_mark(self) -> None:
        self.table.toggle_mark()

    def action_mark_all(self) -> None:
        self.table.toggle_all_marks()

    def action_sort(self) -> None:
        self.table.sort_by_next()

    def action_sort_by(self, number: int) -> None:
        """Sort by a column; if it is sorted by that column already, reverse the order."""
        self.table.sort_by_number(number)

    def action_reverse(self) -> None:
        self.table.reverse_sorting()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        await self.run_action("open")
