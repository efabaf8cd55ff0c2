"""Base class of charts: lines in braille dots over one x-range, with round ticks, a crosshair and the mouse.

All charts of a screen share a `ChartView`, so they show the same range and the same crosshair.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.events import Leave, MouseDown, MouseEvent, MouseMove, MouseUp
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from mario_tui.data.chart_files import Line, PictureCurve
from mario_tui.data.format import fitting
from mario_tui.widgets.base.panel import LineWidget
from mario_tui.widgets.charts.axes import AXIS_NAMES, ChartView, log_ticks, round_ticks, tick_labels, x_text, x_ticks
from mario_tui.widgets.charts.curve import Canvas, Curve, Glyph, gaps_in, reduced

_LABEL = 7
_NARROW = 50
_POINTS_PER_COLUMN, _FEW_POINTS_PER_COLUMN, _FEW_CURVES = 4, 2, 12
"""More points are reduced to their extremes. A cell has two columns of dots, and the lowest and the highest point of
each look like all of them. With many curves half as many must do: the time to draw grows with the number of points,
and the curves hide each other."""
_CURVES_PER_STEP = 6
"""Drawing so many takes some hundredths of a second; then keys get their turn."""
_PAUSE_S = 0.005
_AROUND = 14
"""Cells of the rule beside title, value and note: the spaces around them, and enough of the line to keep them apart."""
_ROWS_PER_TICK, _FEW_ROWS, _COLUMNS_PER_TICK = 3, 8, 14
_ROWS_WITH_LINE, _ROWS_WITH_TICKS = 4, 8
"""Height from which on a chart has the line of the x-axis, and labels below it."""
_CLASSES = ("line-widget--muted", "chart--cursor")
BASE, MUTED, CURSOR = range(3)
"""Inks of every chart; those of a subclass follow."""
FIRST_INK = 3


class Plot(LineWidget):
    """Subclasses provide the curves and their inks, and may add glyphs, marks on the x-axis and a legend."""

    COMPONENT_CLASSES = {"chart--cursor"}

    class Moved(Message):
        """The mouse changed the view; all charts must be redrawn."""

    def __init__(self, title: str, view: ChartView, **more: Any) -> None:
        """`more`: see `LineWidget`."""
        super().__init__(title, classes="panel chart", **more)
        self.full_title = title
        self.logarithmic = False
        self.view = view
        self._dragged_from: float | None = None
        self._due = False
        """Whether it must be drawn as soon as it comes into sight."""
        self._drawing: Iterator[None] | None = None
        """The drawing under way, if it takes several steps."""
        self._is_waiting = False
        """Whether its next step is due."""

    @property
    def columns(self) -> int:
        """Width of the x-axis in cells; zero or negative while not displayed."""
        return self.body[0] - _LABEL

    # ------------------------------------------------------------------------------------------ for subclasses

    @abstractmethod
    def curves(self) -> Iterable[Curve]:
        """Return what to draw; those that come later are drawn over the others."""

    @property
    def curve_count(self) -> int:
        """Return how many curves there are to draw."""
        return 1

    @abstractmethod
    def inks(self) -> Sequence[Style]:
        """The styles of the inks from `FIRST_INK` on."""

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """Return what to save of the chart as a table."""

    @abstractmethod
    def picture_curves(self) -> Sequence[PictureCurve]:
        """Return what to save of it as a picture: the curves without smoothing, on the axis of the view."""

    def single_points(self) -> Sequence[Glyph]:
        """Points that are not on a line; they count for the range of y."""
        return ()

    def glyphs(self, curves: Sequence[Curve], canvas: Canvas) -> Sequence[Glyph]:
        """Characters on the lines, with y in units of the values."""
        return ()

    def marks(self) -> Sequence[tuple[float, str]]:
        """(x, letter) of events to show on the x-axis; in a shared cell the last one is seen."""
        return ()

    def value(self, curves: Sequence[Curve]) -> str:
        """Text after the title."""
        return ""

    def fit_title(self, cells: int) -> None:
        """Make the title fit, if it can be shortened."""

    def legend(self) -> str:
        """Explains the glyphs and marks; shown where the chart is maximised."""
        return ""

    # ------------------------------------------------------------------------------------------ drawing

    def repaint(self) -> None:
        """Draw; a chart with many curves in steps, between which keys are handled. A new drawing replaces one that is
        under way."""
        self._due = False
        self._drawing = self._steps()
        self._draw_step()

    def _draw_step(self) -> None:
        if self._drawing is None:
            return
        try:
            next(self._drawing)
        except StopIteration:
            self._drawing = None
        else:
            if not self._is_waiting:
                self._is_waiting = True
                self.set_timer(_PAUSE_S, self._draw_next_step)

    def _draw_next_step(self) -> None:
        self._is_waiting = False
        self._draw_step()

    def _steps(self) -> Iterator[None]:
        columns, rows = self.columns, self.body[1]
        if columns < 4 or rows < 1:
            self.paint([])
            return
        low_x, high_x = self.view.bounds
        whole = list[Curve]()
        for curve in self.curves():
            whole.append(curve)
            if len(whole) % _CURVES_PER_STEP == 0:
                yield
        value = self.value(whole)
        note = self._fit_rule(whole, value)
        per_column = _POINTS_PER_COLUMN if len(whole) <= _FEW_CURVES else _FEW_POINTS_PER_COLUMN
        single_points = [
            glyph for glyph in self.single_points() if low_x <= glyph.x <= high_x and self.is_drawable(glyph.y)
        ]
        shown, curves = [glyph.y for glyph in single_points], list[Curve]()
        for curve in whole:
            curves.append(few := reduced(curve, low_x, high_x, per_column * columns))
            shown += [y for _, y in self.drawable_points(few)]
            if len(curves) % _CURVES_PER_STEP == 0:
                yield
        if not shown or high_x < low_x:
            self.paint([self._plain(self._nothing_text(curves))], value=value, note=note)
            return
        if high_x == low_x:  # a single point
            low_x, high_x = low_x - 0.5, high_x + 0.5
        with_line, with_ticks = rows >= _ROWS_WITH_LINE, rows >= _ROWS_WITH_TICKS
        legend = self.legend() if with_ticks and self.has_class("-alone") else ""
        body = rows - with_line - with_ticks - bool(legend)
        low, high = self._range(min(shown), max(shown))
        canvas = Canvas(columns, body, (low_x, high_x), (low, high))
        for number, curve in enumerate(curves, 1):
            for ys in curve.behind:
                canvas.line(curve.xs, [self._scale(y) for y in ys], curve.faint)
            if number % _CURVES_PER_STEP == 0:
                yield
        for number, curve in enumerate(curves, 1):
            canvas.line(curve.xs, [self._scale(y) for y in curve.ys], curve.ink)
            if number % _CURVES_PER_STEP == 0:
                yield
        for glyph in (*single_points, *self.glyphs(curves, canvas)):
            canvas.glyph(glyph.x, self._scale(glyph.y), glyph.character, glyph.ink)
        if self.view.cursor is not None:
            canvas.vertical_line(self.view.cursor, CURSOR)
        inks = [self.rich_style, *(self.ink(name) for name in _CLASSES), *self.inks()]
        labels = self._y_labels(canvas, low, high, min(shown), max(shown))
        lines = [self._strip([(labels[row], MUTED), *canvas.runs(row)], inks) for row in range(body)]
        ticks, texts = x_ticks(low_x, high_x, self.view.axis, max(1, columns // _COLUMNS_PER_TICK))
        places = [canvas.column(x) for x in ticks]
        if with_line:
            lines.append(self._strip([(" " * _LABEL, MUTED), *self._axis(canvas, places, low_x, high_x)], inks))
        if with_ticks:
            lines.append(self._strip([(self._tick_line(columns, places, texts), MUTED)], inks))
        if legend:
            lines += [self._plain(f"{'':{_LABEL}}{legend}")]
        self.paint(lines, value=value, note=note)

    def draw(self) -> None:
        """Draw, or remember that it is due if the chart is scrolled out of sight."""
        # Textual's `is_on_screen` also holds for what is scrolled out of sight.
        if self.region.overlaps(self.parent.region if isinstance(self.parent, Widget) else self.region):
            self.repaint()
        else:
            self._due = True

    def draw_if_due(self) -> None:
        """Draw what was put off, if the chart has come into sight."""
        if self._due:
            self.draw()

    def is_drawable(self, y: float) -> bool:
        """Return whether a value has a place on the y-axis."""
        return math.isfinite(y) and (y > 0 or not self.logarithmic)

    def drawable_points(self, curve: Curve) -> list[tuple[float, float]]:
        """The points of a curve that have a place in the visible range."""
        low_x, high_x = self.view.bounds
        return [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if low_x <= x <= high_x and self.is_drawable(y)]

    def _scale(self, y: float) -> float:
        if not self.logarithmic:
            return y
        return math.log10(y) if self.is_drawable(y) else math.nan

    def _range(self, lowest: float, highest: float) -> tuple[float, float]:
        """The scaled range of y; a constant lies in the middle."""
        low, high = self._scale(lowest), self._scale(highest)
        if low < high:
            return low, high
        margin = 0.5 if self.logarithmic else abs(low) / 10 or 1.0
        return max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max)

    def _y_labels(self, canvas: Canvas, low: float, high: float, lowest: float, highest: float) -> list[str]:
        """The label of each row: at round values, or at the ends if fewer than two of them fit."""
        most = canvas.rows // _ROWS_PER_TICK if canvas.rows > _FEW_ROWS else max(2, canvas.rows // 2)
        ticks = log_ticks(_power(low), _power(high), most) if self.logarithmic else round_ticks(low, high, most)
        named = self._by_row(canvas, ticks, tick_labels(ticks, _LABEL - 1))
        if len(named) < 2:
            named = self._by_row(canvas, (lowest, highest), [fitting(y, _LABEL - 1) for y in (lowest, highest)])
        return [f"{named.get(row, ''):>{_LABEL - 1}} " for row in range(canvas.rows)]

    def _by_row(self, canvas: Canvas, ys: Sequence[float], labels: Sequence[str]) -> dict[int, str]:
        pairs = zip(ys, labels, strict=True)
        return {canvas.row(self._scale(y)): label for y, label in pairs if self.is_drawable(y)}

    def _axis(self, canvas: Canvas, places: Sequence[int], low_x: float, high_x: float) -> list[tuple[str, int]]:
        """The x-axis with its ticks and marks."""
        cells = ["─"] * canvas.columns
        for place in places:
            if 0 <= place < canvas.columns:
                cells[place] = "┴"
        for x, letter in self.marks():
            if low_x <= x <= high_x:
                cells[canvas.column(x)] = letter
        return [("".join(run), MUTED if line else BASE) for line, run in groupby(cells, lambda cell: cell in "─┴")]

    def _tick_line(self, columns: int, places: Sequence[int], texts: Sequence[str]) -> str:
        """Labels below their ticks, and the name of the axis at the right end."""
        name = AXIS_NAMES[self.view.axis]
        name = name if columns >= _NARROW else name.split()[0]
        line = [" "] * (_LABEL + columns)
        line[-len(name) :] = name
        end, free = columns - len(name) - 1, 0
        for place, text in zip(places, texts, strict=True):
            at = max(0, place - len(text) // 2)
            if at >= free and at + len(text) <= end:
                line[_LABEL + at : _LABEL + at + len(text)] = text
                free = at + len(text) + 1
        return "".join(line)

    def _fit_rule(self, curves: Sequence[Curve], value: str) -> str:
        """Make the title fit, and return the note: scale, smoothing, gaps and zoom; if there is room beside title and
        value, also the x-range."""
        if not any(curve.xs for curve in curves):
            return ""
        view = self.view
        low_x, high_x = view.bounds
        parts = ["log"] if self.logarithmic else []
        if view.smoothing:
            parts.append(f"ema {view.smoothing:g}")
        if gaps := sum(gaps_in(curve, low_x, high_x) for curve in curves):
            parts.append(f"{gaps:,} NaN/inf")
        if view.span is not None:
            parts.append("zoom")
        text = ", ".join(parts)
        room = self.content_size.width - len(value) - _AROUND
        self.fit_title(room - len(text))
        reach = f"to {x_text(high_x, view.axis)}" + (f" {AXIS_NAMES[view.axis]}" if view.axis == "time" else "")
        if self.content_size.width < _NARROW:
            reach = reach.removesuffix(" steps")
        with_reach = ", ".join([*parts, reach])
        return with_reach if len(with_reach) + len(self.title) <= room else text

    def _nothing_text(self, curves: Sequence[Curve]) -> str:
        values = [y for curve in curves for y in curve.ys]
        if any(math.isfinite(y) for y in values):
            return "no positive values for this log axis" if self.logarithmic else "no data in this range"
        return "no finite values yet" if values else "no data yet"

    def _plain(self, text: str) -> Strip:
        width = max(0, self.body[0])
        return Strip([Segment(text[:width], self.ink("line-widget--muted"))])

    def _strip(self, pieces: Sequence[tuple[str, int]], inks: Sequence[Style]) -> Strip:
        return Strip([Segment(text, inks[ink]) for text, ink in pieces])

    # ------------------------------------------------------------------------------------------ the mouse

    def _x_at(self, event: MouseEvent) -> float | None:
        """x at the pointer; None outside the plot."""
        columns = self.columns
        column = event.x - 1 - _LABEL
        low, high = self.view.bounds
        return low + (high - low) * (column + 0.5) / columns if 0 <= column < columns and high > low else None

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
                self.view.pan(share)
                self.post_message(self.Moved())
            return
        x = self._x_at(event)
        if x != self.view.cursor:
            self.view.cursor = x
            self.post_message(self.Moved())

    def on_leave(self, event: Leave) -> None:
        if self.view.cursor is not None:
            self.view.cursor = None
            self.post_message(self.Moved())


def faint(style: Style, background: Style) -> Style:
    """A colour half way to the background; a colour of the terminal's palette becomes dim."""
    if style.color is None or background.bgcolor is None or style.color.is_default or background.bgcolor.is_default:
        return style + Style(dim=True)
    ours, theirs = style.color.get_truecolor(), background.bgcolor.get_truecolor()
    mixed = [(mine + other) // 2 for mine, other in zip(ours, theirs, strict=True)]
    return style + Style(color=Color.from_rgb(*mixed))


def _power(exponent: float) -> float:
    return 10.0 ** min(max(exponent, -300.0), 300.0)
