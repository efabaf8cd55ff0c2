"""A table with sorting and marks. Only cells whose content has changed are updated, and a long table is filled in
parts, so that keys rarely wait for it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rich.text import Text
from textual import work
from textual.binding import Binding
from textual.message import Message
from textual.widgets import DataTable

from mario_tui.terminal.internals import skip_measuring

_MARK = "◆"
GAP = 2
"""Cells between two columns."""
MARK_WIDTH = len(_MARK) + GAP
_AT_ONCE = 100
"""Rows that are made before the next key has its turn."""
_PAUSE_S = 0.01


class Keyed(Protocol):
    """What a row shows."""

    @property
    def key(self) -> str:
        """Identifies it."""


Row = TypeVar("Row", bound=Keyed)


@dataclass(frozen=True)
class Column(Generic[Row]):
    """Content and sort order of a column. What needs the most `room` gives way first in a narrow table."""

    key: str
    label: str
    width: int
    room: int
    cell: Callable[[Row], Text]
    order: Callable[[Row], Any]
    largest_first: bool = True
    """When it is sorted by this column for the first time."""


@dataclass
class _Shown(Generic[Row]):
    row: Row
    content: object
    """What its cells are made from."""
    cells: tuple[Text, ...] = ()
    """Empty until it is in the table for the first time."""


class MarkedTable(DataTable[Text], Generic[Row], inherit_bindings=False):
    """Subclasses define the columns, and the order of rows that tie in the sort column.

    The bindings of Enter, Home and End are removed: a table would consume Enter even without rows, and go to the first
    and last column. The screen handles them.
    """

    BINDINGS = [
        binding
        for binding in DataTable.BINDINGS
        if isinstance(binding, Binding) and binding.key not in ("enter", "home", "end")
    ]

    class Changed(Message):
        """The rows, the marks or the order have changed."""

    def __init__(self, title: str, *, id: str, sorting: tuple[str, bool]) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self.border_title = self._title = title
        self.sorting = sorting
        """Key of the column, and whether the largest value comes first."""
        self.marked: set[str] = set()
        self.listed: list[Row] = []
        """All rows, shown or not."""
        self._shown: dict[str, _Shown[Row]] = {}  # by key, in their order
        self._waiting: list[str] = []  # keys of the last of these, which are not in the table yet
        self._visible: Sequence[Column[Row]] = ()
        self._heads: list[tuple[str, str, int]] = []  # key, label and width of each column
        self._to_select = ""

    # ------------------------------------------------------------------------------------------ for subclasses

    @abstractmethod
    def all_columns(self) -> Sequence[Column[Row]]:
        """All columns, whether there is room for them or not."""

    @abstractmethod
    def visible_columns(self) -> Sequence[Column[Row]]:
        """Return those that are shown, in their order."""

    def in_order(self, rows: Iterable[Row]) -> list[Row]:
        """The rows in the order of those that are equal in the column that is sorted by."""
        return list(rows)

    def matches(self, row: Row) -> bool:
        """Return whether a row is shown."""
        return True

    def content(self, row: Row) -> object:
        """Equal as long as a row looks the same."""
        return row

    # ------------------------------------------------------------------------------------------ content

    def current(self) -> Row | None:
        """The row under the cursor."""
        if not self.row_count:
            return None
        key = str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)
        return next((row for row in self.listed if row.key == key), None)

    @property
    def hidden_marks(self) -> int:
        """Marked rows that are not shown."""
        return len(self.marked.difference(self._shown))

    @property
    def shown_count(self) -> int:
        """The number of rows that are shown, also of those that are still to come."""
        return len(self._shown)

    def chosen(self) -> list[Row]:
        """The marked rows in table order; without marks, the one under the cursor."""
        if self.marked:
            return [row for row in self.arranged(self.listed) if row.key in self.marked]
        current = self.current()
        return [] if current is None else [current]

    # ------------------------------------------------------------------------------------------ changes

    def show(self, rows: Iterable[Row]) -> None:
        """Show these rows; drop the marks of those that no longer exist."""
        before, self.listed = self.listed, list(rows)
        if before and [*map(self.content, before)] == [*map(self.content, self.listed)]:
            return
        self.marked &= {row.key for row in self.listed}
        self.update_rows()

    def tell(self, note: str) -> None:
        """Add a note to the title; an empty one removes it."""
        self.border_title = f"{self._title}: {note}" if note else self._title

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and move down a row."""
        current = self.current()
        if current is not None:
            self.marked ^= {current.key}
            self.update_rows()
            self.action_cursor_down()

    def toggle_all_marks(self) -> None:
        """Mark all rows that are shown; if all of them are marked, unmark them."""
        shown = set(self._shown)
        self.marked = self.marked - shown if shown <= self.marked else self.marked | shown
        self.update_rows()

    def clear_marks(self) -> None:
        self.marked.clear()
        self.update_rows()

    def select(self, key: str) -> None:
        """Move the cursor to a row, as soon as there is one with this key."""
        self._to_select = key
        self.update_rows()

    def action_scroll_bottom(self) -> None:
        """Move the cursor to the last row."""
        self._add(len(self._waiting))
        self.move_cursor(row=self.row_count - 1)

    def action_page_down(self) -> None:
        self._add(len(self._waiting))
        super().action_page_down()

    def sort_by(self, key: str) -> None:
        """Sort by this column; if it is the current one, reverse the order."""
        before, largest_first = self.sorting
        self.sorting = (key, not largest_first) if key == before else (key, self._column(key).largest_first)
        self.update_rows()

    def sort_by_next(self) -> None:
        keys = [column.key for column in self.visible_columns()]
        before = self.sorting[0]
        self.sort_by(keys[(keys.index(before) + 1) % len(keys)] if before in keys else keys[0])

    def sort_by_number(self, number: int) -> None:
        """Sort by the visible column with that number, from 1; ignored if there are fewer."""
        columns = self.visible_columns()
        if number <= len(columns):
            self.sort_by(columns[number - 1].key)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        if event.column_key.value in {column.key for column in self.all_columns()}:
            self.sort_by(str(event.column_key.value))

    def on_resize(self) -> None:
        self.update_rows()

    # ------------------------------------------------------------------------------------------ drawing

    def _column(self, key: str) -> Column[Row]:
        return next(column for column in self.all_columns() if column.key == key)

    def arranged(self, rows: Iterable[Row]) -> list[Row]:
        """The rows in the order in which they are shown."""
        key, largest_first = self.sorting
        return sorted(self.in_order(rows), key=self._column(key).order, reverse=largest_first)

    def update_rows(self) -> None:
        """Draw what has changed."""
        self._visible = self.visible_columns()
        heads = [("mark", " ", 1)]
        for column in self._visible:
            arrow = ("▼" if self.sorting[1] else "▲") if column.key == self.sorting[0] else ""
            heads.append((column.key, column.label + arrow, column.width))
        are_equal = heads == self._heads
        before, self._shown, self._heads = self._shown, {}, heads
        for row in self.arranged(filter(self.matches, self.listed)):
            content = row.key in self.marked, self.content(row)
            shown = before.get(row.key) if are_equal else None
            self._shown[row.key] = shown if shown and shown.content == content else _Shown(row, content)
        if are_equal and list(self._shown) == list(before):
            for key, shown in self._shown.items():
                if shown is not before[key] and key in self.rows:
                    shown.cells = self._cells(shown.row)
                    for (column_key, *_), cell, old in zip(heads, shown.cells, before[key].cells, strict=True):
                        if cell != old:
                            self.update_cell(key, column_key, cell)
        else:
            self._rebuild(clear_columns=not are_equal)
        if self._to_select in self._shown:
            at = list(self._shown).index(self._to_select)
            self._add(at + 1 - self.row_count)
            self.move_cursor(row=at)
        if any(row.key == self._to_select for row in self.listed):  # of one that the filter hides, nothing is selected
            self._to_select = ""
        self.post_message(self.Changed())

    def _cells(self, row: Row) -> tuple[Text, ...]:
        mark = Text(_MARK if row.key in self.marked else " ", style="bold yellow")
        return mark, *(column.cell(row) for column in self._visible)

    def _rebuild(self, *, clear_columns: bool) -> None:
        current, at, scrolled = self.current(), self.cursor_row, self.scroll_offset
        key = "" if current is None else current.key
        self._waiting = list(self._shown)
        with self.app.batch_update():
            self.clear(columns=clear_columns)
            if not self.columns:
                for name, label, width in self._heads:
                    self.add_column(Text(label), key=name, width=width)
            if self._waiting:
                row = self._waiting.index(key) if key in self._shown else min(at, len(self._waiting) - 1)
                self._add(max(row, scrolled.y) + max(_AT_ONCE, self.size.height))
                self.move_cursor(row=row, scroll=False)
                self.scroll_to(scrolled.x, scrolled.y, animate=False)
        if self._waiting:
            self._fill()

    @work(exclusive=True, group="rows")
    async def _fill(self) -> None:
        while self._waiting:
            await asyncio.sleep(_PAUSE_S)
            self._add(_AT_ONCE)

    def _add(self, most: int) -> None:
        """Put so many of the rows that wait into the table."""
        keys, self._waiting = self._waiting[: max(0, most)], self._waiting[max(0, most) :]
        for key in keys:
            shown = self._shown[key]
            shown.cells = shown.cells or self._cells(shown.row)
            self.add_row(*shown.cells, key=key)
        skip_measuring(self)


def right(text: str, width: int) -> Text:
    """A cell that is aligned to the right."""
    return Text(text.rjust(width))
