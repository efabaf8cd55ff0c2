"""A chart of one metric of a run over one of three x-axes, with evaluations if it has any, and the run's events as
letters on the x-axis.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rich.style import Style

from engine.protocol.messages import Alert, Changed, Evaluation, KeptEvent, Log, Phase, Point, Ready, Saved
from engine.protocol.metrics import Metric
from mario_tui.data.chart_files import Line, PictureCurve
from mario_tui.data.format import number, since_text
from mario_tui.widgets.charts.axes import Axis, ChartView, x_text
from mario_tui.widgets.charts.curve import Canvas, Curve, Glyph, nearest, smooth
from mario_tui.widgets.charts.plot import FIRST_INK, Plot

MARKS = {
    "d": "setting changed",
    "c": "checkpoint",
    "e": "evaluation",
    "b": "best evaluation",
    "!": "warning or alert",
    "p": "new phase",
    "r": "restart",
}
"""Letters on the x-axis, the most common first."""
_Stepped = TypeVar("_Stepped", Point, Evaluation)


class Curves:
    """A run's points and marks, computed once per snapshot for all charts.

    A resumed run may restart at an earlier step; the points and evaluations it replaces are dropped, so that x never
    goes back. Numbers are in tuples: through the lists of hundreds of runs, each of Python's garbage collections would
    go, and hold up the screen.
    """

    def __init__(
        self,
        points: Sequence[Point] = (),
        others: Sequence[KeptEvent] = (),
        not_finite: Mapping[str, int] | None = None,
    ) -> None:
        """`not_finite`: as in `Progress`."""
        self.not_finite = not_finite or {}
        self.points = _last_pass(points, 1)
        self._steps = tuple(float(point.env_steps) for point in self.points)
        self._wall = tuple(point.wall_s for point in self.points)
        self.evaluations = _last_pass([event for event in others if isinstance(event, Evaluation)], 0)
        self.best = best_of(self.evaluations)
        self.marks = _marks(others, self.best)
        """(environment steps, letter of `MARKS`), in order."""

    def xs(self, axis: Axis, name: str = "env_steps") -> list[float]:
        """x of the points whose value of this name is known."""
        xs = self._steps if axis == "steps" else self._wall
        start = self._wall[-1] if self._wall and axis == "ago" else 0.0
        return [x - start for x, point in zip(xs, self.points, strict=True) if not math.isnan(point.value(name))]

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
        """The known values: a host reports NaN until there is one, in each of its sessions. Infinite ones are gaps."""
        return [value for point in self.points if not math.isnan(value := point.value(name))]

    @property
    def own(self) -> tuple[str, ...]:
        """The names of numbers that the loop has named itself."""
        return tuple(self.points[-1].numbers) if self.points else ()

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


def _last_pass(events: Sequence[_Stepped], least: int) -> tuple[_Stepped, ...]:
    """The events that no later one precedes, with at least so many steps from one to the next."""
    kept: list[_Stepped] = []
    limit = math.inf
    for event in reversed(events):
        if event.env_steps <= limit:
            limit = event.env_steps - least
            kept.append(event)
    return tuple(reversed(kept))


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
            case Log(level="warning" | "error") | Alert():
                marks.append((step, "!"))
            case Ready():
                if started:
                    marks.append((step, "r"))
                started = True
            case _:
                pass
    return marks


_LINE, _RAW, _EVALUATION = range(FIRST_INK, FIRST_INK + 3)
_CLASSES = ("chart--line", "chart--raw", "chart--evaluation")


class Chart(Plot):
    """Marks the highest (▲) or lowest (▼) value of the metric, whichever is its best."""

    COMPONENT_CLASSES = {*_CLASSES}

    def __init__(self, metric: Metric, view: ChartView) -> None:
        # A loop's name for a number may be any text, an id may not.
        id = f"chart-{metric.short.lower()}" if metric.key else f"chart-own-{metric.name.encode().hex()}"
        super().__init__(metric.title, view, id=id, key=metric.key)
        self.short_title = metric.short
        self.metric = metric
        self._curves = Curves()
        self._ys: list[float] = []

    def show_curves(self, curves: Curves) -> None:
        """Show new data; the same object is not drawn again."""
        if curves is not self._curves:
            self._curves, self._ys = curves, curves.values(self.metric.name)
            self.draw()

    @property
    def is_empty(self) -> bool:
        """Return whether the run tells nothing of what the chart shows, though it has told something."""
        has_evaluations = self.metric.evaluated and bool(self._curves.evaluations)
        return bool(self._curves.points) and not self._ys and not has_evaluations

    def curves(self) -> list[Curve]:
        xs = self._curves.xs(self.view.axis, self.metric.name)
        weight = self.view.smoothing
        return [Curve(xs, smooth(self._ys, weight), _LINE, _RAW, [self._ys] if weight else ())]

    def lines(self) -> list[Line]:
        steps, seconds = self._curves.xs("steps", self.metric.name), self._curves.xs("time", self.metric.name)
        return [Line(self.title, steps, seconds, self._ys)]

    def picture_curves(self) -> list[PictureCurve]:
        return [PictureCurve(self.title, self._curves.xs(self.view.axis, self.metric.name), self._ys)]

    def inks(self) -> list[Style]:
        return [self.ink(name) for name in _CLASSES]

    def single_points(self) -> list[Glyph]:
        """The evaluations."""
        curves = self._curves
        return [
            Glyph(
                curves.x_of(event.env_steps, self.view.axis),
                event.mean_return,
                "★" if event is curves.best else "◆",
                _EVALUATION,
            )
            for event in (curves.evaluations if self.metric.evaluated else ())
        ]

    def glyphs(self, curves: Sequence[Curve], canvas: Canvas) -> list[Glyph]:
        """The newest and the best visible value."""
        (curve,) = curves
        points = self.drawable_points(curve)
        if not points:
            return []
        newest = [Glyph(*points[-1], "●", _LINE)] if math.isfinite(curve.ys[-1]) else []
        best = [Glyph(*self._best_of(points), self._best_sign, _LINE)] if self.metric.best else []
        return [*newest, *best]

    def marks(self) -> list[tuple[float, str]]:
        """In a shared cell the rarest kind wins."""
        order = "".join(MARKS)
        by_kind = sorted(self._curves.marks, key=lambda mark: order.index(mark[1]))
        return [(self._curves.x_of(step, self.view.axis), letter) for step, letter in by_kind]

    def value(self, curves: Sequence[Curve]) -> str:
        """The last and the best value, or the value at the crosshair."""
        (curve,) = curves
        known = [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if math.isfinite(y)]
        cursor, axis = self.view.cursor, self.view.axis
        if cursor is None and curve.ys and not math.isfinite(curve.ys[-1]):
            since = self._curves.not_finite.get(self.metric.name)
            return "not finite" if since is None or self.columns <= 16 else since_text(since)
        if not known:
            return ""
        if cursor is None:
            last = number(known[-1][1])
            with_best = self.metric.best and self.columns > 16
            return f"{last} {self._best_sign}{number(self._best_of(known)[1])}" if with_best else last
        x, y = known[nearest([x for x, _ in known], cursor)]
        text = f"{number(y)} at {x_text(x, axis)}"
        if evaluations := self.single_points():
            text += f" ◆{number(evaluations[nearest([glyph.x for glyph in evaluations], cursor)].y)}"
        return text

    def legend(self) -> str:
        shown = {letter for _, letter in self._curves.marks}
        names = [f"{letter} {name}" for letter, name in MARKS.items() if letter in shown]
        names += ["● newest", *([f"{self._best_sign} {self.metric.best}est"] if self.metric.best else [])]
        if self.metric.evaluated and self._curves.evaluations:
            names.append("◆ evaluation  ★ best evaluation")
        return "  ".join(names)

    def _best_of(self, points: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return (max if self.metric.best == "high" else min)(points, key=lambda point: point[1])

    @property
    def _best_sign(self) -> str:
        return "▲" if self.metric.best == "high" else "▼"
