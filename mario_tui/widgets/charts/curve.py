"""One line of a chart as it is drawn: smoothed, reduced to the extremes of each column, and plotted in braille dots, 2
x 4 per cell.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] bits of a braille character


class Canvas:
    """`rows` x `columns` cells. A cell has the style of the last series drawn in it; glyphs replace its dots."""

    def __init__(self, columns: int, rows: int, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.columns, self.rows = columns, rows
        self._x, self._y = x, y
        self._x_scale, self._y_scale = _scale(columns * 2 - 1, *x), _scale(rows * 4 - 1, *y)
        self._bits = [[0] * columns for _ in range(rows)]
        self._ink = [[0] * columns for _ in range(rows)]
        self._glyphs: dict[tuple[int, int], tuple[str, int]] = {}

    def column(self, x: float) -> int:
        """The cell column of x; may be outside the canvas."""
        dot = (x - self._x[0]) * self._x_scale
        return math.floor(min(max(dot, -2.0), 2.0 * self.columns)) // 2

    def row(self, y: float) -> int:
        """The row of cells of a finite y, from the top; that of the edge for a y outside."""
        dot = int(min(max((y - self._y[0]) * self._y_scale, 0), self.rows * 4 - 1))
        return self.rows - 1 - dot // 4

    def line(self, xs: Sequence[float], ys: Sequence[float], ink: int) -> None:
        """Draw a line through points sorted by x, with gaps where y is not finite; skip those outside the x-range."""
        gap, after_gap = False, set[int]()
        extent: dict[int, list[int]] = {}  # dot column -> [lowest, highest, first, last] dot row, from the bottom
        (x_low, x_high), (y_low, _) = self._x, self._y
        right, top = self.columns * 2 - 1, self.rows * 4 - 1
        for x, y in zip(xs, ys, strict=True):
            if not x_low <= x <= x_high:
                continue
            if not math.isfinite(y):
                gap = True
                continue
            column = int(min((x - x_low) * self._x_scale, right))
            if gap:
                after_gap.add(column)
                gap = False
            dot = int(min(max((y - y_low) * self._y_scale, 0), top))
            seen = extent.get(column)
            if seen is None:
                extent[column] = [dot, dot, dot, dot]
            else:
                seen[0], seen[1], seen[3] = min(seen[0], dot), max(seen[1], dot), dot
        before: tuple[int, int] | None = None
        for column, (bottom, high, first_dot, last_dot) in extent.items():
            self._fill(column, bottom, high, ink)
            if before is not None and column not in after_gap:  # interpolate over the columns in between
                then, level = before
                last = level
                for step in range(then + 1, column + 1):
                    dot = round(level + (first_dot - level) * (step - then) / (column - then))
                    self._fill(step, min(dot, last + 1), max(dot, last - 1), ink)  # joined, however steep
                    last = dot
                if column == then + 1:
                    self._fill(column, min(level, first_dot), max(level, first_dot), ink)
            before = (column, last_dot)

    def glyph(self, x: float, y: float, character: str, ink: int) -> None:
        """Put a character in the cell of a point, if it is inside the x-range."""
        if not self._x[0] <= x <= self._x[1] or not math.isfinite(y):
            return
        self._glyphs[self.row(y), self.column(x)] = (character, ink)

    def vertical_line(self, x: float, ink: int) -> None:
        """Draw a vertical line through the empty cells of a column."""
        column = self.column(x)
        if not 0 <= column < self.columns:
            return
        for row in range(self.rows):
            if (row, column) not in self._glyphs:
                if self._bits[row][column]:
                    self._ink[row][column] = ink
                else:
                    self._glyphs[row, column] = ("│", ink)

    def runs(self, row: int) -> list[tuple[str, int]]:
        """A row as (text, ink) pieces of equal ink."""
        pieces: list[tuple[str, int]] = []
        text, ink = "", 0
        for column, bits in enumerate(self._bits[row]):
            character, new = self._glyphs.get(
                (row, column), (chr(0x2800 + bits) if bits else " ", self._ink[row][column])
            )
            if new != ink and text and character != " ":
                pieces.append((text, ink))
                text = ""
            if character != " ":
                ink = new
            text += character
        return [*pieces, (text, ink)] if text else pieces

    def _fill(self, column: int, bottom: int, top: int, ink: int) -> None:
        cell = column // 2
        height = self.rows * 4
        for dot in range(bottom, top + 1):
            from_top = height - 1 - dot
            row = from_top // 4
            self._bits[row][cell] |= _DOTS[from_top % 4][column % 2]
            self._ink[row][cell] = ink


def _scale(dots: int, low: float, high: float) -> float:
    """Dots per unit; finite even if the range overflows a float or is close to zero."""
    return dots / min(max((high - low) or 1.0, 1e-300), sys.float_info.max)


@dataclass(frozen=True)
class Curve:
    """A line to draw: `ys` in the ink `ink`; behind it, in `faint`, other lines at the same `xs`, the lowest first."""

    xs: Sequence[float]
    ys: Sequence[float]
    ink: int
    faint: int
    behind: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Glyph:
    """A character at a point."""

    x: float
    y: float
    character: str
    ink: int


def reduced(curve: Curve, low_x: float, high_x: float, most: int) -> Curve:
    """The visible part of a curve with the lowest and the highest of every few points and the last one, at most `most`
    points in all (at least 3); the curve itself if it is short, or if there are gaps in what is visible.

    If there are lines behind it, the points are the lowest of the first and the highest of the last of these: the
    curve lies between them.
    """
    first, last = bisect_left(curve.xs, low_x), bisect_right(curve.xs, high_x)
    lows, highs = (curve.behind[0], curve.behind[-1]) if curve.behind else (curve.ys, curve.ys)
    lows, highs = lows[first:last], highs[first:last]
    if last - first <= most or not all(map(math.isfinite, (*lows, *highs))):
        return curve
    places = []
    buckets = (most - 1) // 2
    width = -(-(last - first) // buckets)
    for begin in range(0, last - first, width):
        low, high = lows[begin : begin + width], highs[begin : begin + width]
        places += [first + begin + at for at in sorted({low.index(min(low)), high.index(max(high))})]
    if places[-1] != last - 1:
        places.append(last - 1)

    def chosen(values: Sequence[float]) -> list[float]:
        return [values[at] for at in places]

    return Curve(chosen(curve.xs), chosen(curve.ys), curve.ink, curve.faint, [chosen(ys) for ys in curve.behind])


def smooth(ys: Sequence[float], weight: float) -> list[float]:
    """Exponential moving average with bias correction as in Adam; values that are not finite become NaN."""
    if not weight:
        return list(ys)
    mean, total, smoothed = 0.0, 0.0, []
    for y in ys:
        if not math.isfinite(y):
            smoothed.append(math.nan)
            continue
        mean = weight * mean + (1 - weight) * y
        total = weight * total + (1 - weight)
        smoothed.append(mean / total)
    return smoothed


def nearest(xs: Sequence[float], x: float) -> int:
    """Index of the value nearest to x in a sorted, non-empty sequence."""
    after = bisect_left(xs, x)
    if after == 0:
        return 0
    if after == len(xs) or x - xs[after - 1] <= xs[after] - x:
        return after - 1
    return after


def gaps_in(curve: Curve, low_x: float, high_x: float) -> int:
    """Number of visible values that are not finite, from the first finite one on: at its start, a run has no loss."""
    if all(map(math.isfinite, curve.ys)):
        return 0
    count, started = 0, False
    for x, y in zip(curve.xs, curve.ys, strict=True):
        if math.isfinite(y):
            started = True
        elif started and low_x <= x <= high_x:
            count += 1
    return count
