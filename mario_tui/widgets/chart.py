"""A line chart in braille dots: 2 x 4 of them to a cell, thinned to the columns there are before it is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text
from textual.events import Resize
from textual.widgets import Static

from mario_tui.format import number, short

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] bits of a braille character
_LABEL = 7


class Chart(Static):
    """One series over environment steps. Draws only when its data or its size have changed."""

    def __init__(self, title: str, colour: str, *, id: str) -> None:
        super().__init__(id=id, classes="panel chart")
        self._title, self._colour = title, colour
        self.border_title = title
        self._xs: Sequence[float] = ()
        self._ys: Sequence[float] = ()

    def show(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Show a series; values that are not finite are left out."""
        if len(xs) == len(self._xs) and (not xs or (xs[-1] == self._xs[-1] and ys[-1] == self._ys[-1])):
            return
        self._xs, self._ys = xs, ys
        self._draw()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        finite = [(x, y) for x, y in zip(self._xs, self._ys, strict=True) if math.isfinite(y)]
        self.border_title = f"{self._title} {number(finite[-1][1])}" if finite else self._title
        columns, rows = self.content_size.width - _LABEL, self.content_size.height
        if columns < 4 or rows < 1:
            return
        if len(finite) < 2:
            self.update(Text("no data yet", style="dim"))
            return
        self.update(self._plot(finite, columns, rows))

    def _plot(self, points: list[tuple[float, float]], columns: int, rows: int) -> Text:
        body = rows - 1 if rows >= 4 else rows  # the last row is the x axis where there is room for one
        low, high = min(y for _, y in points), max(y for _, y in points)
        text = Text(no_wrap=True, overflow="crop")
        for row, line in enumerate(braille_lines(points, columns, body, low, high)):
            label = number(high) if row == 0 else number(low) if row == body - 1 else ""
            text.append(f"{label[: _LABEL - 1]:>{_LABEL - 1}} ", style="dim")
            text.append(line + "\n", style=self._colour)
        if body < rows:
            first, last = short(points[0][0]), short(points[-1][0])
            text.append(" " * _LABEL + first + last.rjust(columns - len(first)), style="dim")
        return text


def braille_lines(points: list[tuple[float, float]], columns: int, rows: int, low: float, high: float) -> list[str]:
    """Points, sorted by x, as `rows` lines of `columns` braille characters."""
    width, height = columns * 2, rows * 4
    first, last = points[0][0], points[-1][0]
    x_span, y_span = (last - first) or 1.0, (high - low) or 1.0
    extent: dict[int, list[int]] = {}  # dot column -> [lowest, highest, first, last] dot row, from the bottom
    for x, y in points:
        column = int((x - first) / x_span * (width - 1))
        dot = int((y - low) / y_span * (height - 1))
        seen = extent.setdefault(column, [dot, dot, dot, dot])
        seen[0], seen[1], seen[3] = min(seen[0], dot), max(seen[1], dot), dot
    cells = [[0] * columns for _ in range(rows)]

    def fill(column: int, bottom: int, top: int) -> None:
        for dot in range(bottom, top + 1):
            from_top = height - 1 - dot
            cells[from_top // 4][column // 2] |= _DOTS[from_top % 4][column % 2]

    before: tuple[int, int] | None = None
    for column, (bottom, top, first_dot, last_dot) in extent.items():
        fill(column, bottom, top)
        if before is not None:  # a straight line over the columns between
            then, level = before
            for step in range(then + 1, column):
                share = (step - then) / (column - then)
                dot = round(level + (first_dot - level) * share)
                fill(step, dot, dot)
            if column == then + 1:
                fill(column, min(level, first_dot), max(level, first_dot))
        before = (column, last_dot)
    return ["".join(chr(0x2800 + bits) for bits in row) for row in cells]
