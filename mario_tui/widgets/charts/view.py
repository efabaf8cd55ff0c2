"""What the charts of a screen share: x-axis, visible window, smoothing and crosshair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mario_tui.data.format import duration, steps

Axis = Literal["steps", "time", "ago"]
AXES: tuple[Axis, ...] = ("steps", "time", "ago")
AXIS_NAMES: dict[Axis, str] = {"steps": "steps", "time": "training time", "ago": "before the end"}
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
ZOOM = 2.0


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
    """The view that all charts of a screen share. `reach` is the first and last x of all their data."""

    axis: Axis = "steps"
    smoothing: float = 0.0
    window: Window = field(default_factory=Window)
    cursor: float | None = None
    """Position of the crosshair in units of the axis; None: hidden."""
    reach: tuple[float, float] = (0.0, 0.0)

    @property
    def bounds(self) -> tuple[float, float]:
        """The visible range of x."""
        return self.window.bounds(*self.reach)

    def zoom(self, factor: float, around: float | None) -> None:
        self.window.zoom(factor, around, *self.reach)

    def pan(self, share: float) -> None:
        self.window.pan(share, *self.reach)

    def move_cursor(self, cells: int, columns: int) -> None:
        """Move the crosshair by cells of a chart with that many columns; at the edge the window moves."""
        low, high = self.bounds
        if columns <= 0 or high <= low:
            return
        cell = (high - low) / columns
        first, last = self.reach
        self.cursor = high - cell / 2 if self.cursor is None else min(max(self.cursor + cells * cell, first), last)
        if not low <= self.cursor <= high:
            self.pan((self.cursor - (low if cells < 0 else high)) / (high - low))


def x_text(x: float, axis: Axis) -> str:
    """A position on the axis with its unit, so that it is not mistaken for a value of the chart."""
    if axis == "steps":
        return steps(x)
    return duration(x) if axis == "time" else f"{duration(-x)} before the end" if x < 0 else "end"
