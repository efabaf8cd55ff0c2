"""The list of compared runs, which is also the legend of their charts, and the options in which they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from engine.config.fields import flag
from mario_tui.data.differences import Configuration
from mario_tui.data.format import counted, number, shortened
from mario_tui.data.run_status import RunStatus
from mario_tui.widgets.base.panel import LineWidget, ListPanel
from mario_tui.widgets.charts.comparison import Series

_VALUE = 9
"""Width of a column of values, if its head is no longer."""


Key = str | Configuration
"""Identifies a row: a run by its path, the runs of one configuration by that."""


@dataclass(frozen=True)
class ComparedRun:
    """A row: a run, or several of one configuration. `series` is its mean return in training, and `evaluated` the mean
    return of its best evaluation; for several runs the mean of both."""

    key: Key
    name: str
    series: Series
    evaluated: float | None
    statuses: Sequence[RunStatus]
    """The states of its runs, each once."""
    hidden: bool
    problem: str

    @property
    def newest(self) -> float | None:
        at = self.series.place(math.inf, "steps")
        return None if at is None else self.series.values[at]

    @property
    def highest(self) -> float | None:
        return max(filter(math.isfinite, self.series.values), default=None)


RANKINGS: Mapping[str, Callable[[ComparedRun], float | None]] = {
    "best evaluation": lambda row: row.evaluated,
    "mean return": lambda row: row.newest,
    "highest mean return": lambda row: row.highest,
    "name": lambda row: 0.0,
}
"""What rows can be ranked by, the highest first."""


def rankings(rows: Sequence[ComparedRun]) -> list[str]:
    """Return those of `RANKINGS` for which any of the rows has a value."""
    return [name for name, value in RANKINGS.items() if any(value(row) is not None for row in rows) or name == "name"]


def ranked(rows: Sequence[ComparedRun], by: str) -> list[ComparedRun]:
    """The pinned rows, then the others, each ranked by one of `RANKINGS`, those without it by their newest mean return;
    rows of one rank keep their order."""

    def place(row: ComparedRun) -> tuple[bool, bool, float]:
        value = RANKINGS[by](row)
        shown = row.newest if value is None else value
        return not row.series.pinned, value is None, math.inf if shown is None else -shown

    return sorted(rows, key=place)


class ComparedRunsPanel(ListPanel[ComparedRun]):
    """Colour, name, mean return of the best evaluation if there is one, newest and highest mean return in training of
    each run; hidden runs are dim."""

    def __init__(self) -> None:
        super().__init__("Runs", id="compared", key="1")
        self._by = self._head = ""
        self._moved = False
        """Whether the user has moved the cursor; until then it stays on the first row."""
        self._places: Sequence[int | None] = ()
        self._nothing = ""

    def go(self, index: int) -> None:
        self._moved = True
        super().go(index)

    def keys(self) -> list[Key]:
        return [row.key for row in self.rows]

    def show(self, rows: Sequence[ComparedRun], by: str, head: str, places: Sequence[int | None], nothing: str) -> None:
        """Show the rows, ranked `by` one of `RANKINGS`, with the mean return at one point of each line, if it has that;
        `head` tells where it is, such as `last`. `nothing`: why there is no row, if there is none."""
        shown = (rows, by, head, places, nothing)
        if shown != (self.rows, self._by, self._head, self._places, self._nothing) or not self._lines:
            self.rows, self._by, self._head, self._places, self._nothing = shown
            if not self._moved:
                self._cursor = None
            self.title = self.short_title = f"Runs by {by}" if len(rows) > 1 else "Runs"
            self.repaint()

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """All rows, the head and the rule."""
        return max(1, len(self.rows)) + 1 + self.framed

    def repaint(self) -> None:
        width, height = self.body
        if not height:
            return
        if not self.rows:
            self.paint(self.text_lines(Text(self._nothing, style="dim"), width))
            return
        shown, index = self.rows_to_draw(max(1, height - 1)), self.index
        longest = max(len(_name(row)) for row in self.rows)
        states = max(len(row.statuses) for row in self.rows)
        heads = {"best evaluation": "best eval", "mean return": self._head, "highest mean return": "highest"}
        if all(row.evaluated is None for row in self.rows):
            del heads["best evaluation"]
        room = _room_of_name(width - states, heads)
        if room < longest and len(heads) == 3:
            del heads["mean return" if self._by == "highest mean return" else "highest mean return"]
            room = _room_of_name(width - states, heads)
        room = max(8, min(longest, room))
        lines = [Text(f"  {'run':<{room}}{''.join(map(_cell, heads.values(), heads.values()))}", style="bold")]
        lines += [self._row(row, room, heads, row == index and self.has_focus) for row in shown]
        are_fewer = any(row.series.is_of_fewer(at) for row, at in zip(self.rows, self._places, strict=True))
        note = ", ".join(filter(None, ("* mean of fewer runs" * are_fewer, self.position(shown))))
        self.paint(self.text_lines(Text("\n", no_wrap=True).join(lines), width), note=note)

    def _row(self, at: int, room: int, heads: Mapping[str, str], here: bool) -> Text:
        """A row with a name of `room` cells, and values under these heads."""
        row = self.rows[at]
        style = Style(color=row.series.colour, bold=row.series.pinned, dim=row.hidden)
        text = Text()
        text.append("· " if row.hidden else f"{row.series.marker} ", style=style)
        text.append(f"{shortened(_name(row), room):<{room}}", style=style + Style(reverse=here))
        place = self._places[at]
        values = {name: of(row) for name, of in RANKINGS.items()}
        values["mean return"] = None if place is None else row.series.values[place]
        if all(values[name] is None for name in heads):
            return text.append(f" {row.problem or 'no data yet'}", style="dim")
        texts = {name: number(values[name]) for name in heads}
        if row.series.is_of_fewer(place) and "mean return" in texts:
            texts["mean return"] += "*"
        cells = "".join(_cell(texts[name], head) for name, head in heads.items())
        text.append(f"{cells} ", style="dim" if row.hidden else "")
        for status in row.statuses:
            text.append(status.symbol, status.colour)
        return text


def _cell(text: str, head: str) -> str:
    return f" {text:>{max(_VALUE, len(head))}}"


def _room_of_name(width: int, heads: Mapping[str, str]) -> int:
    """Cells that marker, values and a gap leave to the name."""
    return width - 3 - sum(len(_cell("", head)) for head in heads.values())


def _name(row: ComparedRun) -> str:
    return f"{row.name} ⇧" if row.series.pinned else row.name


_WIDEST = 16
"""Width of a value's column at most; a longer value is cut."""


class DifferencesPanel(LineWidget):
    """Columns have the runs' colours and markers; those that do not fit are counted."""

    def __init__(self) -> None:
        super().__init__("Configuration", id="differences", key="2")
        self._runs: Sequence[Series] = ()
        self._options: Mapping[str, Sequence[str]] = {}

    def show(self, runs: Sequence[Series], options: Mapping[str, Sequence[str]]) -> None:
        """Show the values of each option, in the order of the runs."""
        runs = [Series(run.name, run.index, pinned=run.pinned) for run in runs]
        if (runs, options) != (self._runs, self._options) or not self._lines:
            height = self.get_content_height(None, None, 0)
            self._runs, self._options = runs, options
            self.repaint()
            if self.get_content_height(None, None, 0) != height and self.styles.is_auto_height:
                self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return max(1, len(self._options) + bool(self._options)) + self.framed

    def repaint(self) -> None:
        width, height = self.body
        if not height:
            return
        if not self._options:
            few = "only one line is shown" if self._runs else "no line is shown"
            text = "no option differs" if len(self._runs) > 1 else few
            self.paint(self.text_lines(Text(text, style="dim"), width))
            return
        named = {flag(name).removeprefix("--"): values for name, values in self._options.items()}
        first = min(max(map(len, named)), max(8, width // 3))
        widths = [
            min(_WIDEST, max(1, *(len(values[at]) for values in named.values()))) for at in range(len(self._runs))
        ]
        shown = 0
        while shown < len(widths) and first + sum(widths[: shown + 1]) + 2 * (shown + 1) <= width:
            shown += 1
        head = Text(" " * first)
        for run, room in zip(self._runs[:shown], widths, strict=False):
            head.append(f"  {run.marker:>{room}}", style=f"bold {run.colour}")
        lines = [head]
        for name, values in named.items():
            line = Text(f"{shortened(name, first):<{first}}")
            for value, room in zip(values[:shown], widths, strict=False):
                line.append(f"  {shortened(value, room):>{room}}")
            lines.append(line)
        rows = lines[:height]
        notes = []
        if len(rows) < len(lines):
            rows[-1] = Text(f"{counted(len(lines) - height + 1, 'more option')}", style="dim")
        if shown < len(widths):
            notes.append(f"{counted(len(widths) - shown, 'run')} not shown")
        self.paint(self.text_lines(Text("\n", no_wrap=True).join(rows), width), note=", ".join(notes))
