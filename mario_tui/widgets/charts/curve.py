"""One line of a chart as it is drawn: smoothed, and reduced to what can be seen."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


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
    count, started = 0, False
    for x, y in zip(curve.xs, curve.ys, strict=True):
        if math.isfinite(y):
            started = True
        elif started and low_x <= x <= high_x:
            count += 1
    return count
