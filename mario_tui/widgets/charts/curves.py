"""The data of charts: points over one of three x-axes, the visible window, smoothing."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.protocol.messages import Changed, Evaluation, Log, Noted, Phase, Point, Ready, Saved
from mario_tui.data.format import duration, steps

Axis = Literal["steps", "time", "ago"]
AXES: tuple[Axis, ...] = ("steps", "time", "ago")
AXIS_NAMES: dict[Axis, str] = {"steps": "steps", "time": "training time", "ago": "time ago"}
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
ZOOM = 2.0
MARKS = {
    "c": "checkpoint",
    "e": "evaluation",
    "b": "best evaluation",
    "!": "warning",
    "d": "setting changed",
    "p": "new phase",
    "r": "restart",
}
"""Letters on the x-axis, the most common first."""


@dataclass
class Window:
    """The visible range of the x-axis. Without a span: the whole range; without an end: follows the newest point."""

    span: float | None = None
    end: float | None = None

    def bounds(self, first: float, last: float) -> tuple[float, float]:
        if self.span is None or self.span >= last - first:
            return first, last
        end = min(max(last if self.end is None else self.end, first + self.span), last)
        return end - self.span, end

    def zoom(self, factor: float, around: float | None, first: float, last: float) -> None:
        """Multiply the span by `factor`, with `around` as the fixed point. The minimum is 1/1000 of the whole range."""
        low, high = self.bounds(first, last)
        whole = last - first
        span = max((high - low) * factor, whole / 1000)
        if whole <= 0 or span >= whole:
            self.span = self.end = None
            return
        if around is None:
            around = high if self.end is None else (low + high) / 2
        end = around + (high - around) * span / max(high - low, 1e-12)
        self.span, self.end = span, None if end >= last - whole * 1e-9 else max(end, first + span)

    def pan(self, share: float, first: float, last: float) -> None:
        """Move by a share of the visible range; at the right end it follows the newest point again."""
        if self.span is None:
            return
        _, high = self.bounds(first, last)
        end = max(high + share * self.span, first + self.span)
        self.end = None if end >= last else end


@dataclass
class ChartView:
    """The view that all charts of a dashboard share: axis, window, smoothing and crosshair."""

    axis: Axis = "steps"
    smoothing: float = 0.0
    window: Window = field(default_factory=Window)
    cursor: float | None = None
    """Position of the crosshair in units of the axis; None: hidden."""


class Curves:
    """A run's points and marks, computed once per snapshot for all charts.

    A resumed run may restart at an earlier step; the points it replaces are dropped, so that x only increases.
    """

    def __init__(self, points: Sequence[Point] = (), others: Sequence[Noted] = ()) -> None:
        kept: list[Point] = []
        limit = math.inf
        for point in reversed(points):
            if point.env_steps < limit:
                limit = point.env_steps
                kept.append(point)
        self.points = kept[::-1]
        self._steps = [float(point.env_steps) for point in self.points]
        self._wall = [point.wall_s for point in self.points]
        self.marks = _marks(others)
        """(environment steps, letter of `MARKS`), in order."""
        self.evaluations = [event for event in others if isinstance(event, Evaluation)]
        self.best = best_of(self.evaluations)

    def xs(self, axis: Axis) -> list[float]:
        """x of every point."""
        if axis == "steps":
            return self._steps
        if axis == "time":
            return self._wall
        return [wall - self._wall[-1] for wall in self._wall]

    def reach(self, axis: Axis) -> tuple[float, float]:
        """First and last x of all points and marks."""
        xs = self.xs(axis)
        if not xs:
            return 0.0, 0.0
        return xs[0], max(xs[-1], *(self.x_of(step, axis) for step, _ in self.marks[-1:]), xs[0])

    def x_of(self, env_steps: float, axis: Axis) -> float:
        """x of an event at a step; interpolated between points."""
        if axis == "steps" or not self._steps:
            return env_steps
        wall = self._wall_at(env_steps)
        return wall if axis == "time" else wall - self._wall[-1]

    def values(self, name: str) -> list[float]:
        return [getattr(point, name) for point in self.points]

    def _wall_at(self, env_steps: float) -> float:
        after = bisect_left(self._steps, env_steps)
        if after == 0:
            return self._wall[0]
        if after == len(self._steps):
            return self._wall[-1]
        left, right = self._steps[after - 1], self._steps[after]
        share = (env_steps - left) / (right - left)
        return self._wall[after - 1] + share * (self._wall[after] - self._wall[after - 1])


def best_of(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """The best evaluation: the newest one that was the best so far when it ran."""
    return next((event for event in reversed(evaluations) if event.best), None)


def _marks(others: Sequence[Noted]) -> list[tuple[float, str]]:
    marks: list[tuple[float, str]] = []
    best = best_of([event for event in others if isinstance(event, Evaluation)])
    step, started = 0.0, False
    for event in others:
        step = float(getattr(event, "env_steps", step))
        match event:
            case Saved(kind="checkpoint"):
                marks.append((step, "c"))
            case Evaluation():
                marks.append((step, "b" if event is best else "e"))
            case Changed():
                marks.append((step, "d"))
            case Phase():
                marks.append((step, "p"))
            case Log(level="warning" | "error"):
                marks.append((step, "!"))
            case Ready():
                if started:
                    marks.append((step, "r"))
                started = True
            case _:
                pass
    return marks


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


def x_text(x: float, axis: Axis) -> str:
    """A position on the axis with its unit, so that it is not mistaken for a value of the chart."""
    if axis == "steps":
        return steps(x)
    return duration(x) if axis == "time" else f"{duration(-x)} ago" if x < 0 else "now"
