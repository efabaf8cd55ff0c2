"""A chart of one metric of the run in braille dots, with evaluations if it has any.

All charts of a dashboard share one x-range and crosshair, through a common `ChartView`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from rich.segment import Segment
from rich.style import Style
from textual.events import Leave, MouseDown, MouseEvent, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp
from textual.message import Message
from textual.strip import Strip

from mario_tui.data.format import fitting, number
from mario_tui.widgets.base.braille import Canvas
from mario_tui.widgets.base.line_widget import LineWidget
from mario_tui.widgets.charts.curves import AXIS_NAMES, MARKS, ZOOM, ChartView, Curves, nearest, smooth, x_text

_LABEL = 7
_NARROW = 50
_BASE, _MUTED, _LINE, _RAW, _EVALUATION, _CURSOR = range(6)
_CLASSES = ("line-widget--muted", "chart--line", "chart--raw", "chart--evaluation", "chart--cursor")


class Chart(LineWidget):
    """`values` names a field of `Point`; `best` tells whether its highest (▲) or lowest (▼) value is marked."""

    COMPONENT_CLASSES = {"chart--line", "chart--raw", "chart--evaluation", "chart--cursor"}

    class Moved(Message):
        """The mouse changed the view; all charts must be redrawn."""

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
        super().__init__(title, id=id, number=number, classes="panel chart")
        self.short_title = short
        self.logarithmic = False
        self._values, self._view, self._best, self._evaluated = values, view, best, evaluated
        self._curves = Curves()
        self._ys: list[float] = []
        self._dragged_from: float | None = None

    def show_curves(self, curves: Curves) -> None:
        """Show new data; the same object is not drawn again."""
        if curves is not self._curves:
            self._curves, self._ys = curves, curves.values(self._values)
            self.repaint()

    @property
    def columns(self) -> int:
        """Width of the x-axis in cells; zero or negative while not displayed."""
        return self.body[0] - _LABEL

    # ------------------------------------------------------------------------------------------ drawing

    def repaint(self) -> None:
        columns, rows = self.columns, self.body[1]
        if columns < 4 or rows < 1:
            self.paint([])
            return
        view, curves = self._view, self._curves
        xs = curves.xs(view.axis)
        ys = smooth(self._ys, view.smoothing)
        low_x, high_x = view.window.bounds(*curves.reach(view.axis))
        evaluations = [
            (curves.x_of(event.env_steps, view.axis), event.mean_return, event is curves.best)
            for event in (curves.evaluations if self._evaluated else ())
        ]
        inside = [y for x, y in zip(xs, ys, strict=True) if low_x <= x <= high_x]
        shown = [y for y in (*inside, *(y for x, y, _ in evaluations if low_x <= x <= high_x)) if self._drawable(y)]
        if not shown or high_x <= low_x:
            self.paint([self._plain(self._nothing_text())], note=self._note(low_x, high_x))
            return
        with_marks, with_ticks = rows >= 4, rows >= 9
        body = rows - with_marks - with_ticks
        low, high = self._scale(min(shown)), self._scale(max(shown))
        canvas = Canvas(columns, body, (low_x, high_x), (low, high))
        if view.smoothing:
            canvas.line(xs, [self._scale(y) for y in self._ys], _RAW)
        canvas.line(xs, [self._scale(y) for y in ys], _LINE)
        for x, y, best in evaluations:
            canvas.glyph(x, self._scale(y), "★" if best else "◆", _EVALUATION)
        self._mark_best_and_last(canvas, xs, ys, low_x, high_x)
        if view.cursor is not None:
            canvas.vertical_line(view.cursor, _CURSOR)
        inks = [self.rich_style, *(self.ink(name) for name in _CLASSES)]
        lines = [
            self._strip([(self._y_label(row, body, low, high), _MUTED), *canvas.runs(row)], inks) for row in range(body)
        ]
        if with_marks:
            pieces = [(" " * _LABEL, _MUTED), *self._marks(canvas, columns, low_x, high_x)]
            lines.append(self._strip(pieces, inks))
        if with_ticks:
            lines.append(self._strip([(self._ticks(columns, low_x, high_x), _MUTED)], inks))
        value = self._value_text(xs, ys)
        self.paint(lines, value=value, note=self._note(low_x, high_x, len(value)))

    def _scale(self, y: float) -> float:
        if not self.logarithmic:
            return y
        return math.log10(y) if y > 0 and math.isfinite(y) else math.nan

    def _drawable(self, y: float) -> bool:
        return math.isfinite(y) and (y > 0 or not self.logarithmic)

    def _mark_best_and_last(
        self, canvas: Canvas, xs: Sequence[float], ys: Sequence[float], low_x: float, high_x: float
    ) -> None:
        visible = [(x, y) for x, y in zip(xs, ys, strict=True) if low_x <= x <= high_x and self._drawable(y)]
        if not visible:
            return
        x, y = visible[-1]
        canvas.glyph(x, self._scale(y), "●", _LINE)
        if self._best == "high":
            x, y = max(visible, key=lambda point: point[1])
            canvas.glyph(x, self._scale(y), "▲", _LINE)
        else:
            x, y = min(visible, key=lambda point: point[1])
            canvas.glyph(x, self._scale(y), "▼", _LINE)

    def _y_label(self, row: int, rows: int, low: float, high: float) -> str:
        """The label of a row: at the top, at the bottom, and in between if there is room; else blank."""
        step = max(1, (rows - 1) // max(1, rows // 5))
        if row not in (0, rows - 1) and (row % step or rows - 1 - row < max(3, step // 2)):
            return " " * _LABEL
        value = high - (high - low) * row / max(1, rows - 1)
        return f"{fitting(10**value if self.logarithmic else value, _LABEL - 1):>{_LABEL - 1}} "

    def _marks(self, canvas: Canvas, columns: int, low_x: float, high_x: float) -> list[tuple[str, int]]:
        """The x-axis as a line with letters for events; in a shared cell the rarest kind wins."""
        cells = ["─"] * columns
        order = "".join(MARKS)
        for step, letter in self._curves.marks:
            x = self._curves.x_of(step, self._view.axis)
            column = canvas.column(x)
            if low_x <= x <= high_x and order.index(letter) >= order.find(cells[column]):
                cells[column] = letter
        return [("".join(run), _MUTED if line else _BASE) for line, run in groupby(cells, lambda cell: cell == "─")]

    def _ticks(self, columns: int, low_x: float, high_x: float) -> str:
        """Labels below the x-axis, about every 20 cells."""
        count = max(1, columns // 20)
        line = [" "] * (_LABEL + columns)
        for index in range(count + 1):
            text = x_text(low_x + (high_x - low_x) * index / count, self._view.axis)
            at = _LABEL + min(max(0, round((columns - 1) * index / count) - len(text) // 2), columns - len(text))
            line[at : at + len(text)] = text
        return "".join(line)

    def _value_text(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """The last and the best value, or the value at the crosshair."""
        known = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
        cursor = self._view.cursor
        if not known:
            return ""
        if cursor is None:
            best = max(known, key=lambda p: p[1]) if self._best == "high" else min(known, key=lambda p: p[1])
            last = number(known[-1][1])
            return f"{last} {'▲' if self._best == 'high' else '▼'}{number(best[1])}" if self.columns > 16 else last
        x, y = known[nearest([x for x, _ in known], cursor)]
        text = f"{number(y)} at {x_text(x, self._view.axis)}"
        if self._evaluated and self._curves.evaluations:
            places = [self._curves.x_of(event.env_steps, self._view.axis) for event in self._curves.evaluations]
            text += f" ◆{number(self._curves.evaluations[nearest(places, cursor)].mean_return)}"
        return text

    def _note(self, low_x: float, high_x: float, taken: int = 0) -> str:
        """Scale, smoothing, zoom and x-range; if there is room, also a legend for the letters."""
        view = self._view
        if not self._curves.points:
            return ""
        parts = ["log"] if self.logarithmic else []
        if view.smoothing:
            parts.append(f"ema {view.smoothing:g}")
        if view.window.span is not None:
            parts.append("zoom")
        reach = f"to {x_text(high_x, view.axis)}" + (f" {AXIS_NAMES[view.axis]}" if view.axis == "time" else "")
        if self.content_size.width < _NARROW:
            reach = reach.removesuffix(" steps")
        text = ", ".join([*parts, reach])
        legend = ", ".join(f"{letter} {name}" for letter, name in MARKS.items())
        room = self.content_size.width - len(self.title) - taken - len(text) - len(legend) - 16
        return f"{legend}   {text}" if room > 0 and self.has_class("-alone") else text

    def _nothing_text(self) -> str:
        if any(math.isfinite(y) for y in self._ys):
            return "no positive values in this range" if self.logarithmic else "no data in this range"
        return "no data yet"

    def _plain(self, text: str) -> Strip:
        return Strip([Segment(text, self.ink("line-widget--muted"))])

    def _strip(self, pieces: Sequence[tuple[str, int]], inks: Sequence[Style]) -> Strip:
        return Strip([Segment(text, inks[ink]) for text, ink in pieces])

    # ------------------------------------------------------------------------------------------ the mouse

    def _x_at(self, event: MouseEvent) -> float | None:
        """x at the pointer; None outside the plot."""
        columns = self.columns
        column = event.x - 1 - _LABEL
        low, high = self._view.window.bounds(*self._curves.reach(self._view.axis))
        return low + (high - low) * (column + 0.5) / columns if 0 <= column < columns and high > low else None

    def _zoom(self, event: MouseEvent, factor: float) -> None:
        event.stop()
        self._view.window.zoom(factor, self._x_at(event), *self._curves.reach(self._view.axis))
        self.post_message(self.Moved())

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._zoom(event, 1 / ZOOM)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._zoom(event, ZOOM)

    def on_mouse_down(self, event: MouseDown) -> None:
        self._dragged_from = event.x
        self.capture_mouse()

    def on_mouse_up(self, event: MouseUp) -> None:
        self._dragged_from = None
        self.release_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        columns = self.columns
        if self._dragged_from is not None and columns > 0:
            share = (self._dragged_from - event.x) / columns
            self._dragged_from = event.x
            if share:
                self._view.window.pan(share, *self._curves.reach(self._view.axis))
                self.post_message(self.Moved())
            return
        x = self._x_at(event)
        if x != self._view.cursor:
            self._view.cursor = x
            self.post_message(self.Moved())

    def on_leave(self, event: Leave) -> None:
        if self._view.cursor is not None:
            self._view.cursor = None
            self.post_message(self.Moved())
