"""Several series in one chart, in braille dots. Each has its own colour and marker, so that no information depends on
colour alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text
from textual.widgets import Static

from mario_tui.data.format import fitting, shortened, steps
from mario_tui.widgets.base.braille import Canvas

MARKERS = "●▲■◆✚★○△□◇"
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "bright_blue", "white")
"""The numbers of markers and colours have no common divisor, so 70 series are distinct."""
_LABEL = 8
_BETWEEN = 14
"""Columns between two markers of the same series."""


@dataclass(frozen=True)
class Series:
    """A named line; `points` are (x, y) with finite, increasing x. The line has gaps where y is not finite."""

    name: str
    index: int
    points: Sequence[tuple[float, float]]

    @property
    def marker(self) -> str:
        return MARKERS[self.index % len(MARKERS)]

    @property
    def colour(self) -> str:
        return COLOURS[self.index % len(COLOURS)]

    @property
    def drawable(self) -> list[tuple[float, float]]:
        """The points with finite y."""
        return [(x, y) for x, y in self.points if math.isfinite(y)]


def finite(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """The points (x, y) with finite coordinates."""
    return [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]


class Comparison(Static):
    """The chart. It is redrawn only if a series or the size has changed."""

    def __init__(self, *, id: str | None = None, name: str | None = None) -> None:
        super().__init__(id=id, name=name, classes="plot")
        self._series: Sequence[Series] = ()
        self._x_name: Callable[[float], str] = steps
        self._title = ("", "")

    def show(
        self, series: Sequence[Series], x_name: Callable[[float], str] = steps, *, title: str = "", value: str = ""
    ) -> None:
        """Show the series; `x_name` formats a number on the x-axis. A long title is cut, the value after it is not."""
        if series != self._series or x_name is not self._x_name or (title, value) != self._title:
            self._series, self._x_name, self._title = series, x_name, (title, value)
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        title, value = self._title
        if title:  # as a Text: it may contain square brackets
            room = max(8, self.size.width - 3 - len(value))
            self.border_title = Text(f"{shortened(title, room)} {value}".rstrip())
        columns, rows = self.content_size.width - _LABEL, self.content_size.height
        if columns < 8 or rows < 3:
            return
        drawn = [series for series in self._series if series.drawable]
        if not drawn:
            empty = not any(series.points for series in self._series)
            self.update(Text("no data yet" if empty else "no finite values yet", style="dim"))
            return
        self.update(plot(drawn, columns, rows, self._x_name))


def plot(drawn: Sequence[Series], columns: int, rows: int, x_name: Callable[[float], str]) -> Text:
    """The plot: labels, lines in `columns` cells, and below them the ends of the x-axis; `rows` rows in all."""
    xs = [x for series in drawn for x, _ in series.points]
    ys = [y for series in drawn for _, y in series.drawable]
    body = rows - 1
    (first, last), (low, high) = (min(xs), max(xs)), (min(ys), max(ys))
    canvas = Canvas(columns, body, (first, last), (low, high))
    for ink, series in enumerate(drawn):
        for has_value, stretch in groupby(series.points, lambda point: math.isfinite(point[1])):
            points = list(stretch)
            if has_value:
                canvas.line([x for x, _ in points], [y for _, y in points], ink)
    for ink, series in enumerate(drawn):
        _mark(canvas, series, ink)
    text = Text(no_wrap=True, overflow="crop")
    for row in range(body):
        label = fitting(high, _LABEL - 1) if row == 0 else fitting(low, _LABEL - 1) if row == body - 1 else ""
        text.append(f"{label:>{_LABEL - 1}} ", style="dim")
        for piece, ink in canvas.runs(row):
            text.append(piece, style=drawn[ink].colour)
        text.append("\n")
    left, right = x_name(first), x_name(last)
    if len(left) + len(right) >= columns:
        left = ""
    return text.append(" " * _LABEL + left + right.rjust(columns - len(left)), style="dim")


def _mark(canvas: Canvas, series: Series, ink: int) -> None:
    """Put markers along the line and at its end, offset so that those of several series do not overlap."""
    free = (5 * series.index) % _BETWEEN
    for x, y in series.drawable[:-1]:
        if canvas.column(x) >= free:
            canvas.glyph(x, y, series.marker, ink)
            free = canvas.column(x) + _BETWEEN
    canvas.glyph(*series.drawable[-1], series.marker, ink)
