"""The table of runs, with sorting, filter and marks. Only cells whose content has changed are updated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.widgets import DataTable

from engine.runs.annotation import Annotation
from engine.runs.run import Run, RunRecord
from engine.runtime.text import printable
from mario_tui.data.format import duration, moment, number, short
from mario_tui.data.run_filter import matches, options_of, text_of, words_of
from mario_tui.data.run_status import RunStatus
from mario_tui.widgets.panels.header import state_text

_MARK = "◆"
_GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True)
class Listed:
    """A run and its record at the time of reading."""

    run: Run
    record: RunRecord
    annotation: Annotation

    @property
    def key(self) -> str:
        return str(self.run.path)

    @property
    def status(self) -> RunStatus:
        return RunStatus.of_record(self.record)


@dataclass(frozen=True)
class Column:
    """Content and sort order of a column; it is shown if the table is at least `room` cells wide. What needs the most
    room gives way first."""

    key: str
    label: str
    width: int
    room: int
    cell: Callable[[Listed], Text]
    order: Callable[[Listed], Any]


def _right(text: str, width: int) -> Text:
    return Text(text.rjust(width))


def _steps(listed: Listed) -> Text:
    of = f"/{short(listed.record.steps)}" if listed.record.steps else ""
    return _right(f"{short(listed.record.env_steps)}{of}", 11)


def _name(listed: Listed) -> Text:
    machine = listed.record.elsewhere
    return Text.assemble(printable(listed.record.name), (printable(f" @{machine}") if machine else "", "dim"))


def _mean(listed: Listed) -> float:
    mean = listed.record.mean_return
    return float("-inf") if mean is None else mean


def _tags(listed: Listed) -> tuple[str, ...]:
    return listed.annotation.tags


def _symbol(listed: Listed) -> Text:
    return Text(listed.status.symbol, style=f"bold {listed.status.colour}")


_NAME_WIDTH = 25
_LONGEST_NAME = 255
"""Longest folder name; a record may contain any name."""
COLUMNS = (
    Column("state", "state", 10, 64, lambda x: state_text(x.status), lambda x: x.status.rank),
    Column("run", "run", _NAME_WIDTH, 0, _name, lambda x: x.record.name),
    Column("tags", "tags", 14, 90, lambda x: Text(printable(" ".join(x.annotation.tags)), style="cyan"), _tags),
    Column("runner", "runner", 8, 112, lambda x: Text(x.record.runner), lambda x: x.record.runner),
    Column("steps", "steps", 11, 48, _steps, lambda x: x.record.env_steps),
    Column("return", "return", 8, 62, lambda x: _right(number(x.record.mean_return), 8), _mean),
    Column("episodes", "episodes", 8, 124, lambda x: _right(short(x.record.episodes), 8), lambda x: x.record.episodes),
    Column("time", "time", 9, 78, lambda x: _right(duration(x.record.wall_s), 9), lambda x: x.record.wall_s),
    Column("started", "started", 11, 104, lambda x: Text(moment(x.record.created_at)), lambda x: x.record.created_at),
    Column("seen", "last seen", 11, 92, lambda x: Text(moment(x.record.updated_at)), lambda x: x.record.updated_at),
    Column(
        "folder", "folder", 40, 170, lambda x: Text(str(x.run.path.parent), no_wrap=True), lambda x: str(x.run.path)
    ),
)
_BY_KEY = {column.key: column for column in COLUMNS}
_NARROW_STATE = Column("state", "", 1, 0, _symbol, _BY_KEY["state"].order)


class RunsTable(DataTable[Text], inherit_bindings=False):
    """The newest run comes first by default.

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

    def __init__(self) -> None:
        super().__init__(id="runs", cursor_type="row", zebra_stripes=True)
        self.border_title = "Runs"
        self.sorting: tuple[str, bool] = ("started", True)
        """Key of the column, and whether the largest value comes first."""
        self.wanted = ""
        """Filter: a run is shown if it matches all these words (`mario_tui.data.run_filter`)."""
        self.marked: set[str] = set()
        self._all: list[Listed] = []
        self._shown: dict[str, tuple[Text, ...]] = {}
        self._columns_shown: list[tuple[str, str, int]] = []

    # ------------------------------------------------------------------------------------------ content

    @property
    def listed(self) -> list[Listed]:
        """All runs, shown or not."""
        return self._all

    def current(self) -> Listed | None:
        """The run under the cursor."""
        if not self.row_count:
            return None
        key = str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)
        return next((listed for listed in self._all if listed.key == key), None)

    def chosen(self) -> list[Listed]:
        """The marked runs in table order; without marks, the one under the cursor."""
        if self.marked:
            return [listed for listed in self._arranged(self._all) if listed.key in self.marked]
        current = self.current()
        return [] if current is None else [current]

    # ------------------------------------------------------------------------------------------ changes

    def show(self, runs: Iterable[Listed]) -> None:
        """Show these runs; drop the marks of runs that no longer exist."""
        before, self._all = self._all, list(runs)
        if before and [_content(x) for x in before] == [_content(x) for x in self._all]:
            return
        self.marked &= {listed.key for listed in self._all}
        self._update()

    def filter(self, text: str) -> None:
        self.wanted = text
        self._update()

    def toggle_mark(self) -> None:
        """Mark or unmark the run under the cursor, and move down a row."""
        current = self.current()
        if current is not None:
            self.marked ^= {current.key}
            self._update()
            self.action_cursor_down()

    def toggle_all_marks(self) -> None:
        """Mark all runs that are shown; if all of them are marked, unmark them."""
        shown = set(self._shown)
        self.marked = self.marked - shown if shown <= self.marked else self.marked | shown
        self._update()

    def clear_marks(self) -> None:
        self.marked.clear()
        self._update()

    def sort_by(self, key: str) -> None:
        """Sort by this column; if it is the current one, reverse the order."""
        before, largest_first = self.sorting
        self.sorting = (key, not largest_first) if key == before else (key, key not in ("state", "run", "folder"))
        self._update()

    def sort_by_next(self) -> None:
        keys = [column.key for column in self._visible_columns()]
        before = self.sorting[0]
        self.sort_by(keys[(keys.index(before) + 1) % len(keys)] if before in keys else keys[0])

    def sort_by_number(self, number: int) -> None:
        """Sort by the visible column with that number, from 1; ignored if there are fewer."""
        columns = self._visible_columns()
        if number <= len(columns):
            self.sort_by(columns[number - 1].key)

    def reverse_sorting(self) -> None:
        self.sort_by(self.sorting[0])

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        if event.column_key.value in _BY_KEY:
            self.sort_by(str(event.column_key.value))

    def on_resize(self) -> None:
        self._update()

    # ------------------------------------------------------------------------------------------ drawing

    def _visible_columns(self) -> list[Column]:
        room = (self.size.width or self.app.size.width) - max(0, self._longest_name() - _NAME_WIDTH)
        tagged = any(listed.annotation.tags for listed in self._all)
        shown = [column for column in COLUMNS if column.room <= room and (tagged or column.key != "tags")]
        while sum(column.width + _GAP for column in shown) + len(_MARK) + _GAP > room:  # tags take others' room
            shown.remove(max(shown, key=lambda column: column.room))
        return shown if _BY_KEY["state"].room <= room else [_NARROW_STATE, *shown]

    def _longest_name(self) -> int:
        names = (len(printable(listed.record.name)) for listed in self._all if self._matches(listed))
        return min(max(names, default=0), _LONGEST_NAME)

    def _matches(self, listed: Listed) -> bool:
        text = f"{text_of(listed.run, listed.record, listed.annotation)} {listed.status}"
        return matches(words_of(self.wanted), text, lambda: options_of(listed.run))

    def _arranged(self, runs: Iterable[Listed]) -> list[Listed]:
        key, largest_first = self.sorting
        by_age = sorted(runs, key=lambda listed: (-listed.record.created_at, listed.key))
        return sorted(by_age, key=_BY_KEY[key].order, reverse=largest_first)

    def _update(self) -> None:
        columns = self._visible_columns()
        runs = self._arranged(listed for listed in self._all if self._matches(listed))
        heads = [("mark", " ", 1)]
        for column in columns:
            arrow = ("▼" if self.sorting[1] else "▲") if column.key == self.sorting[0] else ""
            width = max(column.width, self._longest_name()) if column.key == "run" else column.width
            heads.append((column.key, column.label + arrow, width))
        rows = {
            listed.key: (
                Text(_MARK if listed.key in self.marked else " ", style="bold yellow"),
                *(column.cell(listed) for column in columns),
            )
            for listed in runs
        }
        if heads == self._columns_shown and list(rows) == list(self._shown):
            for key, cells in rows.items():
                for (column_key, *_), cell, before in zip(heads, cells, self._shown[key], strict=True):
                    if cell != before:
                        self.update_cell(key, column_key, cell)
        else:
            self._rebuild(heads, rows)
        self._columns_shown, self._shown = heads, rows
        self.post_message(self.Changed())

    def _rebuild(self, heads: list[tuple[str, str, int]], rows: dict[str, tuple[Text, ...]]) -> None:
        current, at, scrolled = self.current_key(), self.cursor_row, self.scroll_offset
        with self.app.batch_update():
            self.clear(columns=heads != self._columns_shown)
            if not self.columns:
                for key, label, width in heads:
                    self.add_column(Text(label), key=key, width=width)
            for key, cells in rows.items():
                self.add_row(*cells, key=key)
            if rows:
                row = self.get_row_index(current) if current in rows else min(at, len(rows) - 1)
                self.move_cursor(row=row, scroll=False)
                self.scroll_to(scrolled.x, scrolled.y, animate=False)

    def current_key(self) -> str:
        current = self.current()
        return "" if current is None else current.key


def _content(listed: Listed) -> tuple[object, ...]:
    return listed.key, listed.record, listed.annotation
