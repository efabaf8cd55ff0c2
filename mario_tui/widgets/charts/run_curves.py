"""The data of a run's charts: points over one of three x-axes, and the events on the axis."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

from engine.protocol.messages import Changed, Evaluation, KeptEvent, Log, Phase, Point, Ready, Saved
from mario_tui.widgets.charts.view import Axis

MARKS = {
    "d": "setting changed",
    "c": "checkpoint",
    "e": "evaluation",
    "b": "best evaluation",
    "!": "warning",
    "p": "new phase",
    "r": "restart",
}
"""Letters on the x-axis, the most common first."""
_Stepped = TypeVar("_Stepped", Point, Evaluation)


class Curves:
    """A run's points and marks, computed once per snapshot for all charts.

    A resumed run may restart at an earlier step; the points and evaluations it replaces are dropped, so that x never
    goes back.
    """

    def __init__(self, points: Sequence[Point] = (), others: Sequence[KeptEvent] = ()) -> None:
        self.points = _last_pass(points, 1)
        self._steps = [float(point.env_steps) for point in self.points]
        self._wall = [point.wall_s for point in self.points]
        self.evaluations = _last_pass([event for event in others if isinstance(event, Evaluation)], 0)
        self.best = best_of(self.evaluations)
        self.marks = _marks(others, self.best)
        """(environment steps, letter of `MARKS`), in order."""

    def xs(self, axis: Axis, name: str = "env_steps") -> list[float]:
        """x of the points whose value of this name is known."""
        xs = self._steps if axis == "steps" else self._wall
        start = self._wall[-1] if self._wall and axis == "ago" else 0.0
        return [x - start for x, point in zip(xs, self.points, strict=True) if not math.isnan(getattr(point, name))]

    def reach(self, axis: Axis) -> tuple[float, float]:
        """First and last x of all points and marks."""
        xs = self.xs(axis)
        if not xs:
            return 0.0, 0.0
        return xs[0], max(xs[-1], *(self.x_of(step, axis) for step, _ in self.marks[-1:]), xs[0])

    def x_of(self, env_steps: float, axis: Axis) -> float:
        """x of an event at a step; interpolated between points. NaN if it is unknown: a time without any point."""
        if axis == "steps":
            return env_steps
        if not self._steps:
            return math.nan
        wall = self._wall_at(env_steps)
        return wall if axis == "time" else wall - self._wall[-1]

    def values(self, name: str) -> list[float]:
        """The known values: a host reports NaN until there is one, in each of its sessions."""
        return [value for point in self.points if not math.isnan(value := getattr(point, name))]

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


def _last_pass(events: Sequence[_Stepped], least: int) -> list[_Stepped]:
    """The events that no later one precedes, with at least so many steps from one to the next."""
    kept: list[_Stepped] = []
    limit = math.inf
    for event in reversed(events):
        if event.env_steps <= limit:
            limit = event.env_steps - least
            kept.append(event)
    return kept[::-1]


def _marks(others: Sequence[KeptEvent], best: Evaluation | None) -> list[tuple[float, str]]:
    marks: list[tuple[float, str]] = []
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
