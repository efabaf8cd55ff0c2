"""Histograms of block characters, with a resolution of an eighth of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from mario_tui.data.format import fraction
from mario_tui.widgets.charts.ticks import log_ticks, round_ticks, tick_labels

_LABEL = 6
"""Cells of the labels on the left, with the space behind them."""
_TICK = 8
_TICK_EVERY = 14  # cells


def histogram(
    shares: Sequence[float], low: float, high: float, width: int, rows: int, style: str, *, logarithmic: bool = False
) -> Text:
    """Bars of equal bins from `low` to `high`, above a line of ticks: `rows` + 1 lines of at most `width` cells.

    `shares` may contain any value. The label on the left is the share of the highest bar.
    """
    cells = max(1, (width - _LABEL) // max(1, len(shares)))
    most = max((share for share in shares if math.isfinite(share)), default=0.0)
    heights = [round(fraction(share, most) * rows * 8) or int(share > 0) for share in shares]
    text = Text(no_wrap=True, overflow="ellipsis")
    for row in range(rows):
        label = f"{100 * most:.0f}%" if row == 0 else ""
        text.append(f"{label:>{_LABEL - 1}} ", style="dim")
        below = (rows - 1 - row) * 8
        bars = "".join(" ▁▂▃▄▅▆▇█"[min(max(height - below, 0), 8)] * cells for height in heights)
        text.append(f"{bars.rstrip()}\n", style=style)
    return text.append(" " * _LABEL + _ticks(low, high, cells * len(shares), logarithmic), style="dim")


def _ticks(low: float, high: float, columns: int, logarithmic: bool) -> str:
    """A line of `columns` cells with round numbers below their places."""
    if not (math.isfinite(high - low) and low < high and (low > 0 or not logarithmic)):
        return ""
    most = max(2, columns // _TICK_EVERY)
    values = log_ticks(low, high, most) if logarithmic else round_ticks(low, high, most)
    labels = [f"{value:g}".replace("e-0", "e-") for value in values] if logarithmic else tick_labels(values, _TICK)
    place = math.log if logarithmic else float
    line, end = "", -1
    for value, label in zip(values, labels, strict=True):
        share = (place(value) - place(low)) / (place(high) - place(low))
        start = min(max(0, int(share * columns) - len(label) // 2), columns - len(label))
        if start > end:  # a label that would touch its neighbour is left out
            line = line.ljust(start) + label
            end = len(line)
    return line
