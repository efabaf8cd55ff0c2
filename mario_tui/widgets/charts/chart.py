"""A chart of one metric of the run, with evaluations if it has any, and the run's events as letters on the x-axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rich.style import Style

from mario_tui.data.chart_files import Line
from mario_tui.data.format import number
from mario_tui.widgets.base.braille import Canvas
from mario_tui.widgets.charts.curve import Curve, Glyph, nearest, smooth
from mario_tui.widgets.charts.plot import FIRST_INK, Plot
from mario_tui.widgets.charts.run_curves import MARKS, Curves
from mario_tui.widgets.charts.view import ChartView, x_text

_LINE, _RAW, _EVALUATION = range(FIRST_INK, FIRST_INK + 3)
_CLASSES = ("chart--line", "chart--raw", "chart--evaluation")


class Chart(Plot):
    """`values` names a field of `Point`; `best` tells whether its highest (▲) or lowest (▼) value is marked."""

    COMPONENT_CLASSES = {*_CLASSES}

    def __init__(
        self,
        title: str,
        values: str,
        view: ChartView,
        *,
        id: str,
        number: int,
        short: str,
        best: Literal["high", "low"],
        evaluated: bool = False,
    ) -> None:
        super().__init__(title, view, id=id, number=number)
        self.short_title = short
        self._values, self._best, self._evaluated = values, best, evaluated
        self._curves = Curves()
        self._ys: list[float] = []

    def show_curves(self, curves: Curves) -> None:
        """Show new data; the same object is not drawn again."""
        if curves is not self._curves:
            self._curves, self._ys = curves, curves.values(self._values)
            self.draw()

    def curves(self) -> list[Curve]:
        xs = self._curves.xs(self.view.axis, self._values)
        weight = self.view.smoothing
        return [Curve(xs, smooth(self._ys, weight), _LINE, _RAW, [self._ys] if weight else ())]

    def lines(self) -> list[Line]:
        steps, seconds = self._curves.xs("steps", self._values), self._curves.xs("time", self._values)
        return [Line(self.title, steps, seconds, self._ys)]

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
            for event in (curves.evaluations if self._evaluated else ())
        ]

    def glyphs(self, curves: Sequence[Curve], canvas: Canvas) -> list[Glyph]:
        """The newest and the best visible value."""
        (curve,) = curves
        points = self.drawable_points(curve)
        if not points:
            return []
        return [
            Glyph(*points[-1], "●", _LINE),
            Glyph(*self._best_of(points), self._best_sign, _LINE),
        ]

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
        if not known:
            return ""
        if cursor is None:
            last = number(known[-1][1])
            return f"{last} {self._best_sign}{number(self._best_of(known)[1])}" if self.columns > 16 else last
        x, y = known[nearest([x for x, _ in known], cursor)]
        text = f"{number(y)} at {x_text(x, axis)}"
        if evaluations := self.single_points():
            text += f" ◆{number(evaluations[nearest([glyph.x for glyph in evaluations], cursor)].y)}"
        return text

    def legend(self) -> str:
        shown = {letter for _, letter in self._curves.marks}
        names = [f"{letter} {name}" for letter, name in MARKS.items() if letter in shown]
        names += [f"● newest  {self._best_sign} {'highest' if self._best == 'high' else 'lowest'}"]
        if self._evaluated and self._curves.evaluations:
            names.append("◆ evaluation  ★ best evaluation")
        return "  ".join(names)

    def _best_of(self, points: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return (max if self._best == "high" else min)(points, key=lambda point: point[1])

    @property
    def _best_sign(self) -> str:
        return "▲" if self._best == "high" else "▼"
