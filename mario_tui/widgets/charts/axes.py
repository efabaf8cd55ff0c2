"""Axes of charts: the x-axis, visible window, smoothing and crosshair that the charts of a screen share, and round
positions with labels that tell neighbours apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mario_tui.data.format import duration, fitting, short

Axis = Literal["steps", "time", "ago"]
AXES: tuple[Axis, ...] = ("steps", "time", "ago")
AXIS_NAMES: dict[Axis, str] = {"steps": "steps", "time": "training time", "ago": "before the end"}
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)
ZOOM = 2.0


@dataclass
class ChartView:
    """The view that all charts of a screen share. Without a `span` it is the whole range of their data; without an
    `end` it follows the newest point."""

    axis: Axis = "steps"
    smoothing: float = 0.0
    span: float | None = None
    end: float | None = None
    cursor: float | None = None
    """Position of the crosshair in units of the axis; None: hidden."""
    reach: tuple[float, float] = (0.0, 0.0)
    """First and last x of all data."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The visible range of x."""
        first, last = self.reach
        if self.span is None or self.span >= last - first:
            return first, last
        end = min(max(last if self.end is None else self.end, first + self.span), last)
        return end - self.span, end

    def show_all(self) -> None:
        self.span = self.end = None

    def zoom(self, factor: float, around: float | None) -> None:
        """Multiply the span by `factor`, with `around` as the fixed point. The minimum is 1/1000 of the whole range."""
        (first, last), (low, high) = self.reach, self.bounds
        whole = last - first
        span = max((high - low) * factor, whole / 1000)
        if whole <= 0 or span >= whole:
            self.show_all()
            return
        if around is None:
            around = high if self.end is None else (low + high) / 2
        end = around + (high - around) * span / max(high - low, 1e-12)
        self.span, self.end = span, None if end >= last - whole * 1e-9 else max(end, first + span)

    def pan(self, share: float) -> None:
        """Move by a share of the visible range; at the right end it follows the newest point again."""
        if self.span is None:
            return
        first, last = self.reach
        end = max(self.bounds[1] + share * self.span, first + self.span)
        self.end = None if end >= last else end

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
        return f"{short(x)} steps"
    return duration(x) if axis == "time" else f"{duration(-x)} before the end" if x < 0 else "end"


_UNITS = ((1e12, "T", 1e12), (1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3))
"""From this number on, labels are written with the unit, which stands for the last number; 10k, but 5,000."""
_MOST_DECIMALS = 6
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_TIMES = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
)
"""Round distances in time, in seconds, below a day."""


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten within the range, as many as possible."""
    step = _round_up((high - low) / (most + 1))
    while len(found := _multiples(step, low, high, most)) > most:
        step = _round_up(step * 1.5)
    return found


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """As `round_ticks`, for seconds: multiples of a round number of seconds, minutes, hours or days."""
    for step in _TIMES:
        if (high - low) / step <= most and len(found := _multiples(step, low, high, most)) <= most:
            return found
    return [_DAY * tick for tick in round_ticks(low / _DAY, high / _DAY, most)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Positive values within the range for a logarithmic axis: powers of ten, with 2 and 5 in between if there is room;
    round numbers if the range is too short for two of them."""
    if not 0 < low <= high:
        return []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
        if 2 <= len(found) <= most:
            return found
    if len(found) > most:
        return found[:: -(-len(found) // most)]
    return round_ticks(low, high, most)


def tick_labels(values: Sequence[float], cells: int) -> list[str]:
    """Labels in one unit, with as many decimals as are needed to tell them apart, in at most `cells` cells.

    A label that would look like an earlier one is empty.
    """
    largest = max((abs(value) for value in values), default=0.0)
    unit, divisor = next(((unit, divisor) for limit, unit, divisor in _UNITS if largest >= limit), ("", 1.0))
    if 1e-3 <= largest < 1e15 or largest == 0:
        for decimals in range(_MOST_DECIMALS + 1):
            texts = [f"{value / divisor + 0.0:,.{decimals}f}" for value in values]
            if len(set(texts)) == len(set(values)) and _are_exact(texts, values, divisor):
                labels = ["0" if value == 0 else f"{text}{unit}" for value, text in zip(values, texts, strict=True)]
                if all(len(label) <= cells for label in labels):
                    return labels
                break
    labels = [fitting(value, cells) if value else "0" for value in values]
    return ["" if label in labels[:at] else label for at, label in enumerate(labels)]


def x_ticks(low: float, high: float, axis: Axis, most: int) -> tuple[list[float], list[str]]:
    """Positions and labels on the x-axis; the axis has its unit elsewhere."""
    if axis == "steps":
        found = round_ticks(low, high, most)
        return found, tick_labels(found, 8)
    found = time_ticks(low, high, most)
    return found, ["end" if axis == "ago" and x == 0 else duration(abs(x)) for x in found]


def _round_up(value: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `value`."""
    if not 1e-300 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= value * (1 - 1e-9)), 10 * power)


def _multiples(step: float, low: float, high: float, most: int) -> list[float]:
    """The multiples within the range, but no more than one above `most`."""
    tolerance = 1e-9 * min(step, high - low)  # of rounding; a range may be much shorter than the step
    first = math.ceil((low - tolerance) / step)
    found = [(first + index) * step for index in range(most + 1)]
    # Rounded, because a multiple such as 3 * 0.1 is 0.30000000000000004. Steps may be shorter than floats are apart.
    digits = max(0, 2 - math.floor(math.log10(step)))
    return list(dict.fromkeys(round(value, digits) + 0.0 for value in found if value <= high + tolerance))


def _are_exact(texts: Sequence[str], values: Sequence[float], divisor: float) -> bool:
    return all(
        math.isclose(float(text.replace(",", "")) * divisor, value, rel_tol=1e-6, abs_tol=1e-12)
        for text, value in zip(texts, values, strict=True)
    )
