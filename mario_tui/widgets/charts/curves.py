"""What charts draw: a run's points over one of three x axes, the window that is looked at, smoothing."""

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
AXIS_NAMES: dict[Axis, str] = {"steps": "steps", "time": "trained time", "ago": "time ago"}
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
ZOOM = 2.0
MARKS = {
    "c": "checkpoint",
    "e": "evaluation",
    "b": "best evaluation",
    "!": "warning",
    "d": "number changed",
    "p": "new phase",
    "r": "restart",
}
"""Letters on the x axis, the commonest first."""


@dataclass
class Window:
    """The stretch of the x axis that is shown. Without a span all of it; without an end it follows the newest."""

    span: float | None = None
    end: float | None = None

    def bounds(self, first: float, last: float) -> tuple[float, float]:
        if self.span is None or self.span >= last - first:
            return first, last
        end = min(max(last if self.end is None else self.end, first + self.span), last)
        return end - self.span, end

    def zoom(self, factor: float, around: float | None, first: float, last: float) -> None:
        """Show `factor` times as much; `around` keeps its place. Not closer than a thousandth of the whole."""
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
        """Move by a share of what is shown; at the right end it follows the newest again."""
        if self.span is None:
            return
        _, high = self.bounds(first, last)
        end = max(high + share * self.span, first + self.span)
        self.end = None if end >= last else end


@dataclass
class Outlook:
    """How all charts of a dashboard look at a run: they share axis, window, smoothing and crosshair."""

    axis: Axis = "steps"
    smoothing: float = 0.0
    window: Window = field(default_factory=Window)
    cursor: float | None = None
    """Where the crosshair stands, in units of the axis."""


class Curves:
    """A run's points and marks, made once for a snapshot and drawn by every chart.

    After a resume steps may start before the last ones: what they replace is left out, so that x only grows.
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
        """(environment steps, letter), in order; letters as in `MARKS`."""
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
        """First and last x of all."""
        xs = self.xs(axis)
        if not xs:
            return 0.0, 0.0
        return xs[0], max(xs[-1], *(self.x_of(step, axis) for step, _ in self.marks[-1:]), xs[0])

    def x_of(self, env_steps: float, axis: Axis) -> float:
        """x of something that happened at a step; between two points on the line that joins them."""
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
    """The best one: the newest of those that were the best in their time."""
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
    """Exponential moving average, corrected at its start as in Adam; passes over what is not finite."""
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
    """Index of the value nearest to x in a sorted sequence that is not empty."""
    after = bisect_left(xs, x)
    if after == 0:
        return 0
    if after == len(xs) or x - xs[after - 1] <= xs[after] - x:
        return after - 1
    return after


def x_text(x: float, axis: Axis) -> str:
    """A place on the axis as people read it, with its unit: it must not be taken for a value of the chart."""
    if axis == "steps":
        return steps(x)
    return duration(x) if axis == "time" else f"{duration(-x)} ago" if x < 0 else "now"
