"""The table of runs on the home screen, with a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.text import Text

from engine.runtime.text import printable
from mario_tui.data.format import duration, moment, number, short
from mario_tui.data.listed import Listed
from mario_tui.data.run_filter import matches, options_of, text_of, words_of
from mario_tui.widgets.base.marked_table import GAP, MARK_WIDTH, Column, MarkedTable, right
from mario_tui.widgets.panels.header import state_text


def _steps(listed: Listed) -> Text:
    of = f"/{short(listed.record.steps)}" if listed.record.steps else ""
    return right(f"{short(listed.record.env_steps)}{of}", 11)


def _name(listed: Listed) -> Text:
    machine = listed.record.elsewhere
    return Text.assemble(listed.label, (printable(f" @{machine}") if machine else "", "dim"))


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
COLUMNS: tuple[Column[Listed], ...] = (
    Column("state", "state", 10, 64, lambda x: state_text(x.status), lambda x: x.status.rank, largest_first=False),
    Column("run", "run", _NAME_WIDTH, 0, _name, lambda x: x.record.name, largest_first=False),
    Column("tags", "tags", 14, 90, lambda x: Text(printable(" ".join(x.annotation.tags)), style="cyan"), _tags),
    Column("runner", "runner", 8, 112, lambda x: Text(x.record.runner), lambda x: x.record.runner),
    Column("steps", "steps", 11, 48, _steps, lambda x: x.record.env_steps),
    Column("return", "return", 8, 62, lambda x: right(number(x.record.mean_return), 8), _mean),
    Column("episodes", "episodes", 8, 124, lambda x: right(short(x.record.episodes), 8), lambda x: x.record.episodes),
    Column("time", "time", 9, 78, lambda x: right(duration(x.record.wall_s), 9), lambda x: x.record.wall_s),
    Column("started", "started", 11, 104, lambda x: Text(moment(x.record.created_at)), lambda x: x.record.created_at),
    Column("seen", "last seen", 11, 92, lambda x: Text(moment(x.record.updated_at)), lambda x: x.record.updated_at),
    Column(
        "folder",
        "folder",
        40,
        170,
        lambda x: Text(str(x.run.path.parent), no_wrap=True),
        lambda x: str(x.run.path),
        largest_first=False,
    ),
)
_STATE = COLUMNS[0]
_NARROW_STATE = replace(_STATE, label="", width=1, room=0, cell=_symbol)


class RunsTable(MarkedTable[Listed]):
    """The newest run comes first by default. A column is shown if the table is at least `room` cells wide."""

    def __init__(self) -> None:
        super().__init__("Runs", id="runs", sorting=("started", True))
        self.wanted = ""
        """Filter: a run is shown if it matches all these words (`mario_tui.data.run_filter`)."""

    def filter(self, text: str) -> None:
        self.wanted = text
        self.update_rows()

    def all_columns(self) -> Sequence[Column[Listed]]:
        return COLUMNS

    def visible_columns(self) -> Sequence[Column[Listed]]:
        longest = self._longest_name()
        room = max(0, (self.scrollable_content_region.width or self.app.size.width) - max(0, longest - _NAME_WIDTH))
        tagged = any(listed.annotation.tags for listed in self.listed)
        shown = [column for column in COLUMNS if column.room <= room and (tagged or column.key != "tags")]
        while len(shown) > 1 and sum(column.width + GAP for column in shown) + MARK_WIDTH > room:  # tags take room
            shown.remove(max(shown, key=lambda column: column.room))
        shown = [replace(each, width=max(each.width, longest)) if each.key == "run" else each for each in shown]
        return shown if _STATE.room <= room else [_NARROW_STATE, *shown]

    def in_order(self, rows: Iterable[Listed]) -> list[Listed]:
        return sorted(rows, key=lambda listed: (-listed.record.created_at, listed.key))

    def matches(self, row: Listed) -> bool:
        text = f"{text_of(row.run, row.record, row.annotation)} {row.status}"
        return matches(words_of(self.wanted), text, lambda: options_of(row.run))

    def content(self, row: Listed) -> object:
        return row.key, row.record, row.annotation

    def _longest_name(self) -> int:
        names = (len(listed.label) for listed in self.listed if self.matches(listed))
        return min(max(names, default=0), _LONGEST_NAME)
