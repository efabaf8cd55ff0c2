"""Points of scalars in columns: `Columns` as they were read, and `History`, which is bounded however long it gets."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import le

MOST_POINTS = 4096
"""Maximum number of points of a series in full buckets; a multiple of four."""


def _integers() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@dataclass
class Columns:
    """Points of one series in the order of the file; all columns have the same length."""

    steps: array[int] = field(default_factory=_integers)
    times: array[float] = field(default_factory=_floats)
    """Unix times, s."""
    values: array[float] = field(default_factory=_floats)

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: int, time: float, value: float) -> None:
        self.steps.append(step)
        self.times.append(time)
        self.values.append(value)

    def extend(self, other: Columns) -> None:
        self.steps.extend(other.steps)
        self.times.extend(other.times)
        self.values.extend(other.values)

    def drop(self, count: int) -> None:
        """Drop the first points."""
        del self.steps[:count], self.times[:count], self.values[:count]

    def drop_from(self, step: int) -> None:
        """Drop the points at a step and later ones."""
        if len(self) and max(self.steps) >= step:
            kept = [place for place, known in enumerate(self.steps) if known < step]
            self.steps, self.times, self.values = (
                array("q", [self.steps[place] for place in kept]),
                array("d", [self.times[place] for place in kept]),
                array("d", [self.values[place] for place in kept]),
            )


@dataclass(frozen=True)
class History:
    """Points of a series in the order in which they were read, in columns of the same length, which never change.

    About `MOST_POINTS` points are all kept. Beyond that, `stride` consecutive points share a bucket, and a bucket keeps
    its lowest and its highest point: no peak is lost, and a line through the points has the outline of the line through
    all of them. Their density says nothing about frequency, so whatever smooths the line must smooth `means`.

    Always among the points: the first, the newest, the lowest and the highest finite one.
    """

    steps: array[int]
    seconds: array[float]
    """Since the first point."""
    values: array[float]
    means: array[float]
    """For each point the mean of its bucket's finite values; the value itself while every point is kept."""
    stride: int
    """Number of points that share a bucket."""
    count: int
    """Number of points that these stand for."""
    ordered: bool
    """Whether steps and seconds are finite and never decrease. Programs may write them otherwise."""

    def __len__(self) -> int:
        return len(self.steps)


class HistoryBuilder:
    """Adds points to a history: `history` is replaced, never changed, so another thread may keep the earlier one."""

    def __init__(self) -> None:
        self.history = History(_integers(), _floats(), _floats(), _floats(), stride=1, count=0, ordered=True)
        self._begun = 0.0
        self._closed = 0  # the history begins with the first point and the full buckets: so many points
        self._open = Columns()  # all points of the last bucket: at least the newest one, which is always shown

    def extend(self, new: Columns) -> None:
        """Add points, oldest first."""
        if not len(new):
            return
        last = self.history
        if not last.count:
            self._begun = new.times[0]
        in_order = last.ordered and self._continued_by(new)
        self.history = replace(last, count=last.count + len(new), ordered=in_order)
        self._open.extend(new)
        self._close()

    def _continued_by(self, new: Columns) -> bool:
        """Return whether points are in order, also after the newest one so far."""
        steps, times = self._open.steps[-1:] + new.steps, self._open.times[-1:] + new.times
        in_order = all(map(le, steps, steps[1:])) and all(map(le, times, times[1:]))
        return in_order and math.isfinite(times[-1] - self._begun)

    def drop_from(self, step: int) -> None:
        """Drop the points at a step and later ones. Of a bucket that loses one of its two points, the other one is
        kept like a new point."""
        known = self.history.steps + self._open.steps
        if not known or max(known) < step:
            return
        self._cut()
        last, width = self.history, 1 if self.history.stride == 1 else 2
        self._open.drop_from(step)
        whole: list[int] = []  # places of points in full buckets, and of single ones
        single: list[int] = []
        for begin in range(1 - width, self._closed, width) if self._closed else ():
            bucket = range(max(0, begin), begin + width)
            kept = [place for place in bucket if last.steps[place] < step]
            (whole if len(kept) == len(bucket) else single).extend(kept)
        if not single and not len(self._open):  # the newest point belongs to the open bucket
            whole, single = whole[:-width], whole[-width:]
        if whole[:1] != [0]:  # the first point belongs to no bucket
            whole, single = [], sorted(whole + single)
        points = self._points(single)
        points.extend(self._open)
        self._open, self._closed = points, len(whole)
        closed = 1 + (len(whole) - 1) // width * last.stride if whole else 0
        self.history = replace(
            last,
            steps=array("q", [last.steps[place] for place in whole]),
            seconds=array("d", [last.seconds[place] for place in whole]),
            values=array("d", [last.values[place] for place in whole]),
            means=array("d", [last.means[place] for place in whole]),
            stride=last.stride if whole else 1,
            count=closed + len(points),
            ordered=last.ordered or not closed + len(points),
        )
        if len(points):
            self._begun = self._begun if whole else points.times[0]
            self._close()

    def thin(self) -> None:
        """Merge neighbouring buckets: two, or four while each is a single point."""
        if self._closed:
            self._cut()
            self._merge()
            self._close()

    def _close(self) -> None:
        """Close the buckets that are full, and add some points of the open one."""
        self._cut()
        while True:
            stride, room = self.history.stride, 1 + MOST_POINTS - self._closed
            full = (len(self._open) - 1) // stride
            if stride == 1:
                full = min(full, room)
                self._keep(range(full), self._open.values[:full])
            else:
                full = min(full, room // 2)
                self._keep(*_outline(self._open.values, full, stride))
            self._open.drop(full * stride)
            self._closed = len(self.history)
            if self._closed <= MOST_POINTS:
                break
            self._merge()
        newest = len(self._open) - 1
        places, means = _outline(self._open.values, 1, newest + 1)
        shown = sorted({*places, newest})
        self._keep(shown, means[:1] * len(shown))

    def _cut(self) -> None:
        """Take the points of the open bucket away again. The columns are new ones."""
        last, end = self.history, self._closed
        self.history = replace(
            last, steps=last.steps[:end], seconds=last.seconds[:end], values=last.values[:end], means=last.means[:end]
        )

    def _keep(self, places: Sequence[int], means: Sequence[float]) -> None:
        """Append points of the open bucket."""
        history, source, begun = self.history, self._open, self._begun
        history.steps.extend([source.steps[place] for place in places])
        history.seconds.extend([source.times[place] - begun for place in places])
        history.values.extend([source.values[place] for place in places])
        history.means.extend(means)

    def _points(self, places: Iterable[int]) -> Columns:
        """Points of full buckets, as if they were new."""
        points = Columns()
        for place in places:
            seconds = self.history.seconds[place]
            points.append(self.history.steps[place], seconds + self._begun, self.history.values[place])
        return points

    def _merge(self) -> None:
        """Keep two of each four points after the first. Single points left over return to the open bucket; a
        bucket left over stays as it is."""
        last, end = self.history, self._closed
        groups = (end - 1) // 4
        whole = 1 + 4 * groups
        rest = range(whole, end)
        if last.stride == 1:
            points = self._points(rest)
            points.extend(self._open)
            self._open, rest = points, range(0)
        places, _ = _outline(last.values[1:whole], groups, 4)
        kept = [0, *(1 + place for place in places), *rest]
        means = last.means[:1]
        for begin in range(1, whole, 4):
            mean = _mean(last.means[begin : begin + 4])
            means.extend((mean, mean))
        means.extend([last.means[place] for place in rest])
        self.history = replace(
            last,
            steps=array("q", [last.steps[place] for place in kept]),
            seconds=array("d", [last.seconds[place] for place in kept]),
            values=array("d", [last.values[place] for place in kept]),
            means=means,
            stride=2 * last.stride if last.stride > 1 else 4,
        )
        self._closed = len(self.history)


def _outline(values: Sequence[float], buckets: int, stride: int) -> tuple[list[int], list[float]]:
    """For each bucket the places of its lowest and its highest finite value, in their order, and its mean twice. The
    places differ if the bucket has two values."""
    places: list[int] = []
    means: list[float] = []
    for begin in range(0, buckets * stride, stride):
        bucket = values[begin : begin + stride]
        total = sum(bucket)
        if math.isfinite(total):
            low, high = min(bucket), max(bucket)
            first, second = bucket.index(low), bucket.index(high) if high > low else len(bucket) - 1
            mean = total / len(bucket)
        else:
            first, second = _extremes(bucket)
            mean = _mean(bucket)
        if second < first:
            first, second = second, first
        places += (begin + first, begin + second)
        means += (mean, mean)
    return places, means


def _extremes(bucket: Sequence[float]) -> tuple[int, int]:
    """The same for one bucket that may contain NaN or infinity; those are only taken where there is nothing else."""
    finite = [place for place, value in enumerate(bucket) if math.isfinite(value)]
    if len(finite) > 1:
        return min(finite, key=bucket.__getitem__), max(reversed(finite), key=bucket.__getitem__)
    first, last = finite[0] if finite else 0, len(bucket) - 1
    return first, last if first < last else 0


def _mean(values: Sequence[float]) -> float:
    """Mean of the finite values; NaN if there are none."""
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan
