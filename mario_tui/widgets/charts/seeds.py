"""The mean of several runs of one configuration, with a 95 % interval of the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from engine.runtime.students_t import half_width
from mario_tui.widgets.charts.comparison import Series

_POINTS = 400


def mean_over(series: Sequence[Series], name: str, index: int, *, pinned: bool = False) -> Series:
    """The mean of the series at evenly spaced steps that all of them have reached, and its 95 % interval (Student's t).

    Between two points of a series its values are interpolated.
    """
    known = [_known(each) for each in series]
    known = [points for points in known if points]
    if not known:
        return Series(name, index, pinned=pinned)
    first, last = max(points[0][0] for points in known), min(points[-1][0] for points in known)
    if first > last:
        return Series(name, index, pinned=pinned)
    steps = [first + (last - first) * at / (_POINTS - 1) for at in range(_POINTS)] if first < last else [first]
    values = list(zip(*(_interpolated(points, steps, 2) for points in known), strict=True))
    seconds = list(zip(*(_interpolated(points, steps, 1) for points in known), strict=True))
    means = [statistics.fmean(at) for at in values]
    halves = [half_width(at) for at in values]
    bounds = (
        ([mean - half for mean, half in zip(means, halves, strict=True)],
         [mean + half for mean, half in zip(means, halves, strict=True)])
        if len(known) > 1 else ()
    )  # fmt: skip
    return Series(name, index, steps, [statistics.fmean(at) for at in seconds], means, bounds, pinned)


def _known(series: Series) -> list[tuple[float, float, float]]:
    """(steps, seconds, value) of the finite values."""
    points = zip(series.steps, series.seconds, series.values, strict=True)
    return [point for point in points if all(map(math.isfinite, point))]


def _interpolated(points: Sequence[tuple[float, float, float]], steps: Sequence[float], column: int) -> list[float]:
    """A column of the points at some steps, which lie within the points' steps and increase."""
    found: list[float] = []
    pairs = pairwise(points) if len(points) > 1 else iter([(points[0], points[0])])
    left, right = next(pairs)
    for step in steps:
        while step > right[0] and (following := next(pairs, None)) is not None:
            left, right = following
        width = right[0] - left[0]
        share = min(max((step - left[0]) / width, 0.0), 1.0) if width > 0 else 1.0
        found.append(left[column] + share * (right[column] - left[column]))
    return found
