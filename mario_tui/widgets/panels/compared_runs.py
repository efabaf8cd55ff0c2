"""The list of compared runs, which is also the legend of their charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.events import Click

from mario_tui.data.differences import Configuration
from mario_tui.data.format import number, shortened
from mario_tui.data.run_status import RunStatus
from mario_tui.widgets.base.list_panel import ListPanel
from mario_tui.widgets.charts.comparison import Series

_VALUE = 9
"""Width of a column of values, if its head is no longer."""

Key = str | Configuration
"""Identifies a row: a run by its path, the runs of one configuration by that."""


@dataclass(frozen=True)
class ComparedRun:
    """A row: a run, or several of one configuration. `series` is its mean return."""

    key: Key
    name: str
    series: Series
    statuses: Sequence[RunStatus]
    """The states of its runs, each once."""
    hidden: bool = False
    problem: str = ""


class ComparedRunsPanel(ListPanel):
    """Colour, name, newest and highest mean return of each run; hidden runs are dim."""

    def __init__(self) -> None:
        super().__init__("Runs", id="compared", number=1)
        self._rows: Sequence[ComparedRun] = ()
        self._head = ""
        self._values: Sequence[float | None] = ()
        self._nothing = ""

    def keys(self) -> list[Key]:
        return [row.key for row in self._rows]

    def show(self, rows: Sequence[ComparedRun], head: str, values: Sequence[float | None], nothing: str) -> None:
        """Show the rows with one mean return each; `head` tells where it was taken, such as `last`. `nothing`: why
        there is no row, if there is none."""
        shown = (rows, head, values, nothing)
        if shown != (self._rows, self._head, self._values, self._nothing) or not self._lines:
            self._rows, self._head, self._values, self._nothing = shown
            self.repaint()

    @property
    def selected(self) -> ComparedRun | None:
        return self._rows[self.index] if self._rows else None

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """All rows, the head and the rule."""
        return max(1, len(self._rows)) + 1 + self.framed

    def repaint(self) -> None:
        width, height = self.body
        if not height:
            return
        if not self._rows:
            self.paint(self.text_lines(Text(self._nothing, style="dim"), width))
            return
        shown, index = self.rows_to_draw(max(1, height - 1)), self.index
        longest = max(len(_name(row)) for row in self._rows)
        states = max(len(row.statuses) for row in self._rows)
        value = max(_VALUE, len(self._head))
        room = max(8, min(longest, width - (2 + 1 + value + 1 + _VALUE + 1 + states)))
        lines = [Text(f"  {'run':<{room}} {self._head:>{value}} {'highest':>{_VALUE}}", style="bold")]
        lines += [self._row(row, room, value, row == index and self.has_focus) for row in shown]
        self.paint(self.text_lines(Text("\n", no_wrap=True).join(lines), width), note=self.position(shown))

    def _row(self, at: int, room: int, width: int, here: bool) -> Text:
        """A row with a name of `room` cells, and a value of `width` cells."""
        row, value = self._rows[at], self._values[at]
        style = Style(color=row.series.colour, bold=row.series.pinned, dim=row.hidden)
        text = Text()
        text.append("· " if row.hidden else f"{row.series.marker} ", style=style)
        text.append(f"{shortened(_name(row), room):<{room}}", style=style + Style(reverse=here))
        if value is None:
            return text.append(f" {row.problem or 'no data yet'}", style="dim")
        highest = max(filter(math.isfinite, row.series.values), default=None)
        text.append(f" {number(value):>{width}} {number(highest):>{_VALUE}} ", style="dim" if row.hidden else "")
        for status in row.statuses:
            text.append(status.symbol, status.colour)
        return text

    def on_click(self, event: Click) -> None:
        """Select a row; a double click opens it."""
        row = self._top + event.y - 2
        if event.y >= 2 and row < len(self._rows):
            self.go(row)
            if event.chain >= 2:
                self.post_message(self.Opened())


def _name(row: ComparedRun) -> str:
    return f"{row.name} ⇧" if row.series.pinned else row.name
