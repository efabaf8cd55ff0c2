"""Table of lanes, sortable: returns, epsilon, furthest position and a sparkline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.events import Click
from textual.message import Message

from engine.protocol.messages import Lane
from mario_tui.data.format import fitting, number_or_whole, thousandths
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.base.panel import ListPanel, sparkline


@dataclass(frozen=True)
class Column:
    """`text` formats a cell, `key` sorts the rows; lanes without a value yet come last."""

    name: str
    title: str
    width: int
    key: Callable[[Lane], float]
    text: Callable[[Lane], str]
    style: str = ""
    rising: bool = False  # smallest value first by default


def _return(value: float) -> str:
    return fitting(value, 5, number_or_whole)


COLUMNS = (
    Column("lane", "lane", 5, lambda lane: lane.actor * 1e6 + lane.lane, lambda lane: f"{lane.actor}.{lane.lane}",
           rising=True),
    Column("last", "last", 5, lambda lane: lane.last_return, lambda lane: _return(lane.last_return)),
    Column("mean", "mean", 5, lambda lane: lane.mean_return, lambda lane: fitting(lane.mean_return, 5), "bold"),
    Column("best", "best", 5, lambda lane: lane.best_return, lambda lane: _return(lane.best_return), "green"),
    Column("epsilon", "eps", 5, lambda lane: lane.epsilon, lambda lane: thousandths(lane.epsilon), "dim", rising=True),
    Column("far", "", 6, lambda lane: lane.best_results[0] if lane.best_results else math.nan,
           lambda lane: fitting(lane.best_results[0], 6, number_or_whole) if lane.best_results else ""),
    Column("clears", "flags", 5, lambda lane: lane.clears,
           lambda lane: f"⚑{lane.clears}" if lane.clears else "–", "yellow"),
    Column("episodes", "games", 6, lambda lane: lane.episodes, lambda lane: f"{lane.episodes}", "dim"),
)  # fmt: skip


class ActorsPanel(ListPanel[Lane]):
    """One row per lane."""

    class Sorted(Message):
        """The sort order was changed with the mouse."""

    def __init__(self) -> None:
        super().__init__("Actors", id="actors", key="1")
        self._snapshot = Snapshot()
        self.sort, self.reverse = "lane", False

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.lanes is not self._snapshot.lanes or not self._lines:
            self._snapshot = snapshot
            self.repaint()

    def keys(self) -> list[tuple[int, int]]:
        return [(lane.actor, lane.lane) for lane in self.rows]

    def next_sort(self) -> None:
        """Sort by the next column."""
        names = [column.name for column in self._columns()]
        at = names.index(self.sort) if self.sort in names else -1
        self.sort, self.reverse = names[(at + 1) % len(names)], False
        self.repaint()

    def turn_sort(self) -> None:
        self.reverse = not self.reverse
        self.repaint()

    # ------------------------------------------------------------------------------------------ drawing

    def _columns(self) -> list[Column]:
        width = self.body[0] or 40
        lanes = self._snapshot.lanes.lanes if self._snapshot.lanes is not None else []
        wanted = ["lane", "last", "mean", "best"]
        if not lanes or not all(math.isnan(lane.epsilon) for lane in lanes):  # not every loop explores by epsilon
            wanted.append("epsilon")
        if width >= 46 and self._snapshot.outcome.results:
            wanted.append("far")
        if width >= 60 and any(lane.clears for lane in lanes):
            wanted.append("clears")
        if width >= 66:
            wanted.append("episodes")
        return [column for column in COLUMNS if column.name in wanted]

    def repaint(self) -> None:
        width, height = self.body
        lanes = self._snapshot.lanes.lanes if self._snapshot.lanes is not None else []
        column = next(column for column in COLUMNS if column.name == self.sort)
        falling = column.rising == self.reverse
        # Lanes without a value stay at the bottom in either direction.
        self.rows = sorted(
            lanes, key=lambda lane: math.inf if math.isnan(k := column.key(lane)) else -k if falling else k
        )
        if not height:
            return
        if not self.rows:
            self.paint(self.text_lines(Text("no lanes reported yet", style="dim"), width))
            return
        shown, index = self.rows_to_draw(max(1, height - 1)), self.index
        columns = self._columns()
        lines = [self._head(columns, falling)]
        spark = width - sum(column.width + 1 for column in columns)
        for row in shown:
            lines.append(self._row(self.rows[row], columns, spark, row == index and self.has_focus))
        text = Text("\n", no_wrap=True).join(lines)
        self.paint(self.text_lines(text, width), note=self.position(shown))

    def _head(self, columns: list[Column], falling: bool) -> Text:
        text = Text(style="bold")
        for column in columns:
            title = self._title_of_best() if column.name == "far" else column.title
            if column.name == self.sort:
                title = f"{title[: column.width - 1]}{'▼' if falling else '▲'}"
            text.append(f"{title:<{column.width}} " if column.name == "lane" else f"{title:>{column.width}} ")
        return text.append("recent")

    def _title_of_best(self) -> str:
        """Of the first result: `best x`, or without the first word if there is no room for it."""
        label = self._snapshot.outcome.results[0].label
        return f"best {label}" if len(label) == 1 else label[:6]

    def _row(self, lane: Lane, columns: list[Column], spark: int, here: bool) -> Text:
        text = Text()
        for column in columns:
            cell = column.text(lane)
            cell = f"{cell:<{column.width}} " if column.name == "lane" else f"{cell:>{column.width}} "
            text.append(cell, style=Style(reverse=True) if here else column.style)
        return text.append(sparkline(lane.returns, max(0, min(20, spark))), style="cyan")

    # ------------------------------------------------------------------------------------------ the mouse

    def on_click(self, event: Click) -> None:
        """A title: sort by that column, or reverse it."""
        if event.y == 1:
            at = 1
            for column in self._columns():
                if at <= event.x < at + column.width + 1:
                    self.reverse = column.name == self.sort and not self.reverse
                    self.sort = column.name
                    self.repaint()
                    self.post_message(self.Sorted())
                    return
                at += column.width + 1
