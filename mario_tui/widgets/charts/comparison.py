"""Several series in one chart. Each has its own colour and marker, so that no information depends on colour alone.

A series may be the mean or interquartile mean of several runs of one configuration, with its 95 % interval and the
number of runs at each step: one that has failed, or has just begun, does not end the curve of the others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

from rich.style import Style

from mario_tui.data.chart_files import Line, PictureCurve, changes
from mario_tui.data.format import number, shortened
from mario_tui.data.seed_statistics import LEAST_SEEDS, Statistic, spread
from mario_tui.widgets.charts.axes import Axis, ChartView, x_text
from mario_tui.widgets.charts.curve import Canvas, Curve, Glyph, nearest, smooth
from mario_tui.widgets.charts.plot import FIRST_INK, Plot, faint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    what was measured. `measured`: the runs, if it is a mean; `counts`: how many there are at each value.
    """

    name: str
    index: int
    steps: Sequence[float] = ()
    seconds: Sequence[float] = ()
    values: Sequence[float] = ()
    bounds: tuple[Sequence[float], ...] = ()
    pinned: bool = False
    means: Sequence[float] = ()
    counts: Sequence[int] = ()
    measured: Sequence[Series] = ()
    seed: int | None = None

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

    def is_of_fewer(self, at: int | None) -> bool:
        """Return whether a value is there, and the mean of fewer runs than others are."""
        return at is not None and bool(self.counts) and self.counts[at] < max(self.counts)

    def place(self, x: float, axis: Axis) -> int | None:
        """Return which finite point is nearest to x; None if there is none, or if x is before the first or further
        behind the last than that is behind the one before it. Infinity stands for the newest point, if it is finite."""
        xs = self.xs(axis)
        if not xs or x < xs[0] or (len(xs) > 1 and math.isfinite(x) and x > 2 * xs[-1] - xs[-2]):
            return None
        if math.isinf(x):
            return len(xs) - 1 if math.isfinite(self.values[-1]) else None
        here = nearest(xs, x)
        left = next((at for at in range(here, -1, -1) if math.isfinite(self.values[at])), None)
        right = next((at for at in range(here + 1, len(xs)) if math.isfinite(self.values[at])), None)
        found = [at for at in (left, right) if at is not None]
        return min(found, key=lambda at: abs(xs[at] - x), default=None)


def reach_of(series: Sequence[Series], axis: Axis) -> tuple[float, float]:
    """First and last x of all series."""
    ends = [x for each in series if each.values for x in (each.xs(axis)[0], each.xs(axis)[-1])]
    return (min(ends), max(ends)) if ends else (0.0, 0.0)


class Comparison(Plot):
    """The chart. Pinned series are drawn over the others, in bold."""

    def __init__(self, title: str, view: ChartView, *, short: str = "", **more: Any) -> None:
        """`short`: title where there is no room for the whole one. `more`: see `LineWidget`."""
        super().__init__(title, view, **more)
        self._short = short
        self.series: Sequence[Series] = ()
        self._reach: tuple[float, float] | None = None
        """Reach of the view when the series were shown."""

    @property
    def curve_count(self) -> int:
        return len(self.series)

    def show(self, series: Sequence[Series]) -> None:
        """Show the series; drawn only if one of them, or the reach of the view, has changed."""
        if self.take(series):
            self.draw()

    def take(self, series: Sequence[Series]) -> bool:
        """Take the series to draw; returns whether one of them, or the reach of the view, has changed."""
        shown = sorted(series, key=lambda each: each.pinned)
        if (shown, self.view.reach) == (self.series, self._reach) and self._lines:
            return False
        self.series, self._reach, self._drawing = shown, self.view.reach, None
        return True

    def fit_title(self, cells: int) -> None:
        whole = self._short if self._short and len(self.full_title) > cells else self.full_title
        self.title = self.short_title = shortened(whole, max(8, cells))  # a tag's end tells more than its start

    def curves(self) -> Iterator[Curve]:
        weight = self.view.smoothing
        for index, each in enumerate(self.series):
            ink = FIRST_INK + 2 * index
            behind = each.bounds or ([each.values] if weight else ())
            line = smooth(each.means or each.values, weight) if weight else each.values
            yield Curve(each.xs(self.view.axis), line, ink, ink + 1, behind)

    def lines(self) -> list[Line]:
        lines = []
        for each in self.series:
            for run in each.measured or [each]:
                setting = each.name if each.measured else None
                lines.append(Line(run.name, run.steps, run.seconds, run.values, setting, run.seed))
        return lines

    def picture_curves(self) -> list[PictureCurve]:
        axis = self.view.axis
        return [PictureCurve(each.name, each.xs(axis), each.values, each.bounds, each.counts) for each in self.series]

    def inks(self) -> list[Style]:
        inks = []
        for each in self.series:
            style = self.rich_style + Style(color=each.colour, bold=each.pinned)
            inks += [style, faint(style, self.rich_style)]
        return inks

    def glyphs(self, curves: Sequence[Curve], canvas: Canvas) -> list[Glyph]:
        """Markers along each line and at its end, offset so that those of several series do not overlap; where the
        number of runs of a mean changes, the new number."""
        glyphs = []
        for each, curve in zip(self.series, curves, strict=True):
            free = (5 * each.index) % _BETWEEN
            points = self.drawable_points(curve)
            for x, y in points[:-1] if len(self.series) <= _MOST_MARKED else ():
                if canvas.column(x) >= free:
                    glyphs.append(Glyph(x, y, each.marker, curve.ink))
                    free = canvas.column(x) + _BETWEEN
            glyphs += self._counts(each, curve, canvas)
            glyphs += [Glyph(x, y, each.marker, curve.ink) for x, y in points[-1:]]
        return glyphs

    def _counts(self, series: Series, curve: Curve, canvas: Canvas) -> list[Glyph]:
        """The number of runs of a mean, at its start and where it changes, if it does."""
        low, high = self.view.bounds
        xs, glyphs = series.xs(self.view.axis), list[Glyph]()
        for at in changes(series.counts):
            y = curve.ys[nearest(curve.xs, xs[at])]
            for cell, digit in enumerate(str(series.counts[at])):
                glyphs.append(Glyph(xs[at] + cell * (high - low) / canvas.columns, y, digit, curve.ink))
        return glyphs

    def value(self, curves: Sequence[Curve]) -> str:
        """The last value of each series, or the one at the crosshair; nothing if there are too many series."""
        axis, cursor = self.view.axis, self.view.cursor
        if len(self.series) > _MOST_VALUES:
            return ""
        found = [(each, each.place(math.inf if cursor is None else cursor, axis)) for each in self.series]
        known = [(each, at) for each, at in found if at is not None]
        if not known:
            return ""
        alone = len(self.series) == 1
        # A newest value that is not finite is not replaced by an earlier one.
        told = [(each, at) for each, at in found if at is not None or (cursor is None and each.values)]
        text = " ".join(f"{'' if alone else each.marker}{_value(each, at)}" for each, at in told)
        first, at = known[0]
        return text if cursor is None else f"{text} at {x_text(first.xs(axis)[at], axis)}"


def _value(series: Series, at: int | None) -> str:
    """A value, and the number of runs if that is not the same everywhere."""
    if at is None:
        return number(None)
    runs = f" n={series.counts[at]}" if len(set(series.counts)) > 1 else ""
    return f"{number(series.values[at])}{runs}"


_POINTS = 400
_NEAR = 0.01
"""Runs end and are evaluated a few steps apart. Within this share of the range, a run counts with its nearest value."""


class Means:
    """Remembers what `over_seeds` returns, by a key, until a run has new data: then its series is another object."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Sequence[Series], Series]] = {}

    def over_seeds(
        self, key: Hashable, series: Sequence[Series], name: str, index: int, statistic: Statistic = "mean"
    ) -> Series:
        made_of, mean = self._known.get((key, statistic), ((), None))
        if mean is None or len(series) != len(made_of) or not all(map(is_, series, made_of)):
            mean = over_seeds(series, name, index, statistic)
            self._known[key, statistic] = series, mean
        return mean


def over_seeds(series: Sequence[Series], name: str, index: int, statistic: Statistic = "mean") -> Series:
    """The statistic at evenly spaced steps, over the series that have got there; between two points of a series its
    values are interpolated."""
    import numpy as np  # here, so that screens without means start without it

    known = [found for each in series if (found := _known(each)).size]
    if not known:
        return Series(name, index)
    first, last = min(found[0, 0] for found in known), max(found[0, -1] for found in known)
    steps = np.linspace(first, last, _POINTS if first < last else 1)
    near = _NEAR * (last - first)
    # [runs, steps]
    there = np.array([(found[0, 0] - near <= steps) & (steps <= found[0, -1] + near) for found in known])
    steps, there = steps[there.any(axis=0)], there[:, there.any(axis=0)]
    seconds, values = (np.array([np.interp(steps, found[0], found[row]) for found in known]) for row in (1, 2))
    counts = there.sum(axis=0)
    middle, half = np.empty(len(steps)), np.full(len(steps), math.nan)
    for count in np.unique(counts):
        at = counts == count
        of_step = spread(values.T[at][there.T[at]].reshape(-1, count), statistic)
        middle[at] = of_step.value
        if count >= LEAST_SEEDS:
            half[at] = of_step.half_width
    bounds = (_plain(middle - half), _plain(middle + half)) if counts.max() >= LEAST_SEEDS else ()
    # Where a slow run ends, the mean of those that go on may be an earlier time.
    time = np.maximum.accumulate((seconds * there).sum(axis=0) / counts)
    return Series(
        name, index, _plain(steps), _plain(time), _plain(middle), bounds,
        counts=_plain(counts), measured=tuple(series),
    )  # fmt: skip


def _plain(values: NDArray[Any]) -> tuple[Any, ...]:
    return tuple(values.tolist())


def _known(series: Series) -> NDArray[np.float64]:
    """Steps, seconds and values of the points that are finite, as `[3, points]`."""
    import numpy as np

    points = np.array([series.steps, series.seconds, series.values], float)
    return points[:, np.isfinite(points).all(axis=0)]
