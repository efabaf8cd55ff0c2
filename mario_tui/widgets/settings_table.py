"""The table of a sweep's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.text import Text

from engine.config.fields import flag
from engine.runtime.text import printable
from mario_tui.data.format import duration, number, short, shortened
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_levels import ListedSetting, names_of, place_of
from mario_tui.data.sweep_statistics import Estimate
from mario_tui.data.sweep_table import PRUNED, WAITING, share, value_text
from mario_tui.widgets.base.marked_table import GAP, MARK_WIDTH, Column, MarkedTable, right
from mario_tui.widgets.charts.comparison import Series

_WIDEST = 24
"""Width of an option's column at most; a longer value is cut."""
_SYMBOLS = {str(status): (status.symbol, status.colour) for status in RunStatus} | {
    WAITING: ("·", "dim"),
    PRUNED: ("⊘", "dim"),
}


class SettingsTable(MarkedTable[ListedSetting]):
    """A column for each option that varies, then results. Each setting has the marker of its curve."""

    def __init__(self) -> None:
        super().__init__("Settings", id="settings", sorting=("given", False))
        self._columns: Sequence[Column[ListedSetting]] = (_GIVEN, *_RESULTS)

    def show(self, rows: Iterable[ListedSetting]) -> None:
        rows = list(rows)
        options = [_option(name, rows) for name in names_of(rows)]
        self._columns = (_GIVEN, *(options if options or not rows else [_NOTHING_VARIES]), *_RESULTS)
        super().show(rows)

    def all_columns(self) -> Sequence[Column[ListedSetting]]:
        return self._columns

    def visible_columns(self) -> Sequence[Column[ListedSetting]]:
        room = self.size.width or self.app.size.width
        shown = list(self._columns)
        while sum(column.width + GAP for column in shown) + MARK_WIDTH > room and any(each.room for each in shown):
            shown.remove(max(shown, key=lambda column: column.room))
        return shown

    def content(self, row: ListedSetting) -> object:
        result = row.result
        states = [member.state for member in result.members]
        return row.number, row.best, row.last, row.better, states, result.env_steps, result.wall_s


def _option(name: str, settings: Sequence[ListedSetting]) -> Column[ListedSetting]:
    def value(row: ListedSetting) -> Any:
        return row.result.settings.get(name)

    def text(row: ListedSetting) -> str:
        return printable(value_text(value(row))) if name in row.result.settings else "–"

    label = shortened(printable(flag(name)[2:]), _WIDEST)
    width = min(_WIDEST, max([len(label) + 1, *(len(text(row)) for row in settings)]))
    return Column(
        f"option {name}", label, width, 0, lambda row: right(shortened(text(row), width), width),
        lambda row: place_of(value(row)), largest_first=False,
    )  # fmt: skip


def marker_of(row: ListedSetting) -> Text:
    """The marker of a setting's curve."""
    series = Series("", row.number)
    return Text(series.marker, style=f"bold {series.colour}")


def _done(row: ListedSetting) -> Text:
    """`3/5 ●`: finished runs, and the symbols of what the others do."""
    text = Text(f"{row.result.done}/{len(row.result.members)}".rjust(5))
    for state in dict.fromkeys(member.state for member in row.result.members):
        if state != RunStatus.FINISHED:
            text.append(" " * (text.cell_len == 5))
            text.append(*_SYMBOLS[state])
    return text


def _interval(found: Estimate | None) -> str:
    return "" if found is None or found.low is None else f"{number(found.low)} to {number(found.high)}"


def _value(found: Estimate | None) -> float | None:
    return None if found is None else found.value


def _order(value: float | None) -> float:
    return float("-inf") if value is None else value


def _column(
    key: str, label: str, width: int, room: int, text: Callable[[ListedSetting], str],
    value: Callable[[ListedSetting], float | None],
) -> Column[ListedSetting]:  # fmt: skip
    return Column(key, label, width, room, lambda row: right(text(row), width), lambda row: _order(value(row)))


_GIVEN = Column[ListedSetting]("given", "#", 2, 0, marker_of, lambda row: row.number, largest_first=False)
_NOTHING_VARIES = Column[ListedSetting](
    "setting", "setting", 19, 0, lambda row: Text("(no option varies)"), lambda row: 0
)
_RESULTS = (
    Column[ListedSetting]("done", "done", 8, 0, _done, lambda row: row.result.done),
    _column("best", "best eval", 10, 0, lambda row: number(_value(row.best)), lambda row: _value(row.best)),
    _column("within", "95 % int.", 16, 2, lambda row: _interval(row.best), lambda row: row.best and row.best.low),
    _column("last", "last", 7, 1, lambda row: number(_value(row.last)), lambda row: _value(row.last)),
    _column("last_in", "95 % int.", 16, 6, lambda row: _interval(row.last), lambda row: row.last and row.last.low),
    _column("better", "better", 7, 4, lambda row: share(row.better), lambda row: row.better),
    _column("steps", "steps", 7, 3, lambda row: short(row.result.env_steps), lambda row: row.result.env_steps),
    _column("time", "time", 9, 5, lambda row: duration(row.result.wall_s), lambda row: row.result.wall_s),
)
