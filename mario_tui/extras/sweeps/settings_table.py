"""The table of a sweep's settings, and the lines of text around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.text import Text

from engine.config.fields import flag
from engine.runtime.text import printable
from mario_tui.data.format import counted, duration, number, short, shortened
from mario_tui.data.run_status import RunStatus
from mario_tui.data.seed_statistics import Statistic
from mario_tui.extras.sweeps.levels import ListedSetting, names_of, place_of
from mario_tui.extras.sweeps.results import (
    DELETED,
    PRUNED,
    SHORTER,
    TOO_FEW,
    WAITING,
    Estimate,
    SettingResult,
    better_text,
    shown_setting,
    states_of,
    states_text,
    value_text,
)
from mario_tui.widgets.base.marked_table import GAP, MARK_WIDTH, Column, MarkedTable, right
from mario_tui.widgets.charts.comparison import Series

_WIDEST = 24
"""Width of an option's column at most; a longer value is cut."""
_SYMBOLS = {str(status): (status.symbol, status.colour) for status in RunStatus} | {
    WAITING: ("·", "dim"),
    PRUNED: ("⊘", "dim"),
    DELETED: ("–", "dim"),
}


class SettingsTable(MarkedTable[ListedSetting]):
    """A column for each option that varies, then results. Each setting has the marker of its curve."""

    def __init__(self) -> None:
        super().__init__("Settings", id="settings", sorting=("given", False))
        self._columns: Sequence[Column[ListedSetting]] = (_GIVEN, *_RESULTS)

    def show(self, rows: Iterable[ListedSetting]) -> None:
        rows = list(rows)
        options = [_option(name, rows) for name in names_of(rows)]
        judged = any(row.final for row in rows)
        reached = [column for column in _RESULTS if judged or column not in _OF_FINISHED]
        self._columns = (_GIVEN, *(options if options or not rows else [_NOTHING_VARIES]), *reached)
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
        return (
            row.number,
            row.final,
            row.best,
            row.last,
            row.is_shorter,
            row.better,
            states,
            result.env_steps,
            result.wall_s,
        )


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


def _marked(row: ListedSetting, found: Estimate | None) -> str:
    return number(_value(found)) + SHORTER * (row.is_shorter and found is not None)


def _better(found: Estimate | None) -> str:
    """A probability, with a question mark if there are too few seeds to know."""
    return "–" if found is None else f"{found.value:.2f}{' ?' * (found.low is None)}"


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
_OF_FINISHED = (
    _column("result", "result", 10, 0, lambda row: _marked(row, row.final), lambda row: _value(row.final)),
    _column("result_in", "95 % int.", 16, 2, lambda row: _interval(row.final), lambda row: row.final and row.final.low),
)
"""Columns that are there once a run has a result."""
_RESULTS = (
    Column[ListedSetting]("done", "done", 8, 0, _done, lambda row: row.result.done),
    *_OF_FINISHED,
    _column("best", "best eval", 10, 0, lambda row: _marked(row, row.best), lambda row: _value(row.best)),
    _column("within", "95 % int.", 16, 2, lambda row: _interval(row.best), lambda row: row.best and row.best.low),
    _column("last", "last", 8, 1, lambda row: _marked(row, row.last), lambda row: _value(row.last)),
    _column("last_in", "95 % int.", 16, 6, lambda row: _interval(row.last), lambda row: row.last and row.last.low),
    _column("better", "better", 7, 4, lambda row: _better(row.better), lambda row: _value(row.better)),
    _column("steps", "steps", 7, 3, lambda row: short(row.result.env_steps), lambda row: row.result.env_steps),
    _column("time", "time", 9, 5, lambda row: duration(row.result.wall_s), lambda row: row.result.wall_s),
)


_BETWEEN, _MOST_LINES = "   ", 2
"""What is between the names of two settings; lines of names at most."""


def title(name: str, results: Sequence[SettingResult], statistic: Statistic, status: str) -> Text:
    """Name and states of the runs. `status`: what else there is to say."""
    runs = states_of(results).total()
    text = Text.assemble((f"Sweep {printable(name)}", "bold"), no_wrap=True, overflow="ellipsis")
    text.append(f"  {counted(runs, 'run')}{': ' * bool(runs)}{states_text(results)}")
    if statistic == "iqm":
        text.append("  IQM", style="bold")
    return text.append(f"  {printable(status)}", style="yellow") if status else text


def broken(name: str, reason: str) -> Text:
    """Name of a sweep that can't be read any more, and why."""
    text = Text.assemble((f"Sweep {printable(name)}", "bold"), no_wrap=True, overflow="ellipsis")
    return text.append(f"  {printable(reason)}", style="bold red")


def reasons(row: ListedSetting | None) -> Text:
    """Why runs of a setting have failed, also those that wait to be begun once more."""
    members = [] if row is None else [each for each in row.result.members if each.has_failed or each.state == WAITING]
    lines = [f"{each.run.name} {each.state}: {each.reason}" for each in members if each.reason]
    more = [f"and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return Text("\n".join(map(printable, (*lines[:_MOST_LINES], *more))), style="red")


def pair(one: ListedSetting, other: ListedSetting) -> Text:
    """The probability that a run of one setting is better than one of the other, both ways."""
    lines = []
    for ours, theirs in ((one, other), (other, one)):
        found = ours.result.improves(theirs.result)
        line = Text.assemble((f"{better_text(found)}  ", "bold"), _named(ours))
        lines.append(line.append(" is better than ").append_text(marker_of(theirs)))
    return Text("\n").join(lines)


def reference(than: ListedSetting | None, *, is_unequal: bool) -> Text:
    """Return what the column `better` of the table tells, if it is there, and the mark of settings that have trained
    less, if there are any."""
    text = Text(f"{SHORTER} trained less than the longest run   " * is_unequal)
    if than is not None:
        text.append(f"better: probability (?: {TOO_FEW}) to be above a run of ").append_text(_named(than))
    return text


def named_settings(shown: Sequence[ListedSetting], room: int) -> Text:
    """Markers and settings, as many on a line of `room` cells as fit: what is wrapped could break in between."""
    lines = [Text()]
    for count, name in enumerate(map(_named, shown)):
        if lines[-1] and lines[-1].cell_len + len(_BETWEEN) + name.cell_len > room:
            if len(lines) == _MOST_LINES:
                lines.append(Text(f"and {len(shown) - count:,} more", style="dim"))
                break
            lines.append(Text())
        lines[-1].append(_BETWEEN * bool(lines[-1])).append_text(name)
    return Text("\n").join(lines)


def _named(row: ListedSetting) -> Text:
    return marker_of(row).append(f" {printable(shown_setting(row.result.settings))}", style="not bold default")
