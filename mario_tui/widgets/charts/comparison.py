"""Several series in one chart. Each has its own colour and marker, so that no information depends on colour alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style

from mario_tui.data.chart_files import Line
from mario_tui.data.format import number, shortened
from mario_tui.widgets.base.braille import Canvas
from mario_tui.widgets.charts.curve import Curve, Glyph, nearest, smooth
from mario_tui.widgets.charts.plot import FIRST_INK, Plot, faint
from mario_tui.widgets.charts.view import Axis, ChartView, x_text

MARKERS = "●▲■◆✚★○△□◇"
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "bright_blue", "white")
"""The numbers of markers and colours have no common divisor, so 70 series are distinct."""
_BETWEEN = 14
"""Columns between two markers of the same series."""
_MOST_MARKED = 12
"""With more series, only the ends of the lines are marked."""
_MOST_VALUES = 4
"""Maximum number of series whose values are shown after the title."""


@dataclass(frozen=True)
class Series:
    """A named line: environment steps and seconds of training, both increasing, and values.

    `bounds`: lower and upper bounds of an interval around the values, with the same length, or nothing. `index`
    determines colour and marker. `means`: what is smoothed instead of the values, if these are only the extremes of
    what was measured.
    """

    name: str
    index: int
    steps: Sequence[float] = ()
    seconds: Sequence[float] = ()
    values: Sequence[float] = ()
    bounds: tuple[Sequence[float], ...] = ()
    pinned: bool = False
    means: Sequence[float] = ()

    @property
    def marker(self) -> str:
        return MARKERS[self.index % len(MARKERS)]

    @property
    def colour(self) -> str:
        return COLOURS[self.index % len(COLOURS)]

    def xs(self, axis: Axis) -> Sequence[float]:
        """x of every value; `ago` counts from the end of the series."""
        if axis == "ago":
            return [max(seconds - self.seconds[-1], -sys.float_info.max) for seconds in self.seconds]
        return self.steps if axis == "steps" else self.seconds

    def at(self, x: float, axis: Axis) -> tuple[float, float] | None:
        """The finite point nearest to x; None if there is none, or if x is before the first or further behind the last
        than that is behind the one before it. Infinity is at the end."""
        xs = self.xs(axis)
        if not xs or x < xs[0] or (len(xs) > 1 and math.isfinite(x) and x > 2 * xs[-1] - xs[-2]):
            return None
        here = nearest(xs, x)
        left = next((at for at in range(here, -1, -1) if math.isfinite(self.values[at])), None)
        right = next((at for at in range(here + 1, len(xs)) if math.isfinite(self.values[at])), None)
        found = [at for at in (left, right) if at is not None]
        at = min(found, key=lambda at: abs(xs[at] - x), default=None)
        return None if at is None else (xs[at], self.values[at])


def reach_of(series: Sequence[Series], axis: Axis) -> tuple[float, float]:
    """First and last x of all series."""
    ends = [x for each in series if each.values for x in (each.xs(axis)[0], each.xs(axis)[-1])]
    return (min(ends), max(ends)) if ends else (0.0, 0.0)


class Comparison(Plot):
    """The chart. Pinned series are drawn over the others, in bold."""

    def __init__(
        self,
        title: str,
        view: ChartView,
        *,
        id: str | None = None,
        name: str | None = None,
        number: int = 0,
        short: str = "",
    ) -> None:
        super().__init__(title, view, id=id, name=name, number=number)
        self._short = short
        """Title where there is no room for the whole one."""
        self._series: Sequence[Series] = ()
        self._reach: tuple[float, float] | None = None
        """Reach of the view when the series were shown."""

    @property
    def series(self) -> Sequence[Series]:
        return self._series

    @property
    def curve_count(self) -> int:
        return len(self._series)

    def show(self, series: Sequence[Series]) -> None:
        """Show the series; drawn only if one of them, or the reach of the view, has changed."""
        if self.take(series):
            self.draw()

    def take(self, series: Sequence[Series]) -> bool:
        """Take the series to draw; returns whether one of them, or the reach of the view, has changed."""
        shown = sorted(series, key=lambda each: each.pinned)
        if (shown, self.view.reach) == (self._series, self._reach) and self._lines:
            return False
        self._series, self._reach = shown, self.view.reach
        return True

    def fit_title(self, cells: int) -> None:
        whole = self._short if self._short and len(self.full_title) > cells else self.full_title
        self.title = self.short_title = shortened(whole, max(8, cells))  # a tag's end tells more than its start

    def curves(self) -> list[Curve]:
        curves = []
        weight = self.view.smoothing
        for index, each in enumerate(self._series):
            ink = FIRST_INK + 2 * index
            behind = each.bounds or ([each.values] if weight else ())
            line = smooth(each.means or each.values, weight) if weight else each.values
            curves.append(Curve(each.xs(self.view.axis), line, ink, ink + 1, behind))
        return curves

    def lines(self) -> list[Line]:
        return [Line(each.name, each.steps, each.seconds, each.values, each.bounds) for each in self._series]

    def inks(self) -> list[Style]:
        inks = []
        for each in self._series:
            style = self.rich_style + Style(color=each.colour, bold=each.pinned)
            inks += [style, faint(style, self.rich_style)]
        return inks

    def glyphs(self, curves: Sequence[Curve], canvas: Canvas) -> list[Glyph]:
        """Markers along each line and at its end, offset so that those of several series do not overlap."""
        glyphs = []
        for each, curve in zip(self._series, curves, strict=True):
            free = (5 * each.index) % _BETWEEN
            points = self.drawable_points(curve)
            for x, y in points[:-1] if len(self._series) <= _MOST_MARKED else ():
                if canvas.column(x) >= free:
                    glyphs.append(Glyph(x, y, each.marker, curve.ink))
                    free = canvas.column(x) + _BETWEEN
            glyphs += [Glyph(x, y, each.marker, curve.ink) for x, y in points[-1:]]
        return glyphs

    def value(self, curves: Sequence[Curve]) -> str:
        """The last value of each series, or the one at the crosshair; nothing if there are too many series."""
        axis, cursor = self.view.axis, self.view.cursor
        if len(self._series) > _MOST_VALUES:
            return ""
        found = [(each, each.at(math.inf if cursor is None else cursor, axis)) for each in self._series]
        known = [(each, point) for each, point in found if point is not None]
        if not known:
            return ""
        alone = len(self._series) == 1
        text = " ".join(f"{'' if alone else each.marker}{number(point[1])}" for each, point in known)
        return text if cursor is None else f"{text} at {x_text(known[0][1][0], axis)}"
