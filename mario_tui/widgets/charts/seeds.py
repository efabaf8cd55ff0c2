"""The mean or the interquartile mean of several runs of one configuration, with its 95 % interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from engine.runtime.students_t import half_width
from mario_tui.data.sweep_statistics import Statistic, statistic_of
from mario_tui.widgets.charts.comparison import Series

_POINTS = 400
_RESAMPLED_POINTS, _RESAMPLES = 120, 1000


def mean_over(series: Sequence[Series], name: str, index: int, *, pinned: bool = False) -> Series:
    """The mean of the series at evenly spaced steps that all of them have reached, and its 95 % interval (Student's t).

    Between two points of a series its values are interpolated.
    """
    steps, seconds, values = _aligned(series, _POINTS)
    if not steps:
        return Series(name, index, pinned=pinned)
    means = [statistics.fmean(at) for at in values]
    halves = [half_width(at) for at in values]
    bounds = (
        ([mean - half for mean, half in zip(means, halves, strict=True)],
         [mean + half for mean, half in zip(means, halves, strict=True)])
        if len(values[0]) > 1 else ()
    )  # fmt: skip
    return Series(name, index, steps, seconds, means, bounds, pinned)


def resampled(series: Sequence[Series], name: str, index: int, statistic: Statistic) -> Series:
    """As `mean_over`, with another interval, which also suits the interquartile mean: that of the bootstrap over seeds,
    as in the table of a sweep."""
    steps, seconds, values = _aligned(series, _RESAMPLED_POINTS)
    if not steps:
        return Series(name, index)
    import numpy as np  # here, so that screens without a sweep start without it

    found = np.array(values)  # [points, seeds]
    count = found.shape[1]
    middle = statistic_of(found, statistic)
    if count < 2:
        return Series(name, index, steps, seconds, middle.tolist())
    chosen = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    low, high = np.transpose([np.quantile(statistic_of(at[chosen], statistic), (0.025, 0.975)) for at in found])
    return Series(name, index, steps, seconds, middle.tolist(), (low.tolist(), high.tolist()))


def _aligned(series: Sequence[Series], points: int) -> tuple[list[float], list[float], list[tuple[float, ...]]]:
    """Evenly spaced steps that all series have reached, and at each of them the mean of their seconds, and their
    values; nothing if there are none."""
    known = [found for each in series if (found := _known(each))]
    first, last = max((found[0][0] for found in known), default=1), min((found[-1][0] for found in known), default=0)
    if first > last:
        return [], [], []
    steps = [first + (last - first) * at / (points - 1) for at in range(points)] if first < last else [first]
    values = list(zip(*(_interpolated(found, steps, 2) for found in known), strict=True))
    seconds = list(zip(*(_interpolated(found, steps, 1) for found in known), strict=True))
    return steps, [statistics.fmean(at) for at in seconds], values


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
