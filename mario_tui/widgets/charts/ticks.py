"""Round positions for axis labels, and labels that tell neighbours apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mario_tui.data.format import duration, fitting
from mario_tui.widgets.charts.view import Axis

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
"""From this number on, labels are written with the unit; 10k, but 5,000."""
_DIVISORS = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
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
    unit = next((unit for limit, unit in _UNITS if largest >= limit), "")
    divisor = _DIVISORS.get(unit, 1.0)
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
