"""The agent's view: a crop of the screen in shades of gray, downscaled by area means.

All sums are integers and both consoles use the same code, so a frame is identical whichever console drew it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import helper, kernel
from engine.errors import UserError

Brightness = Literal["gray", "red"]
"""How bright a color is: `gray` as in ITU-R BT.601 and most publications, `red` mostly by its red part."""

WEIGHTS: dict[Brightness, tuple[int, int, int]] = {"gray": (299, 587, 114), "red": (700, 300, 0)}
"""Thousandths of red, green and blue in the brightness of a pixel. In `gray`, Mario is nearly as bright as the sky and
the sea; in `red`, he is brighter. Some of the green keeps the walls underground brighter than black."""


@dataclass(frozen=True)
class View:
    """Rows `top` to `bottom` and columns `left` to `right` (exclusive) of the 240x256 screen, scaled to `height` x
    `width`.

    `mark` is the side of a square in the upper left corner that is white while A is held, black otherwise; 0 for none.
    Mario jumps only if A is released and pressed again, and the screen does not show whether A is held. `brightness`
    decides the shades. Raises `UserError` for a part that is not on the screen, and for a size that is not positive.
    """

    top: int
    bottom: int
    left: int
    right: int
    height: int
    width: int
    mark: int = 0
    brightness: Brightness = "gray"

    def __post_init__(self) -> None:
        for first, last, name, limit in (
            (self.top, self.bottom, "rows top to bottom", 240),
            (self.left, self.right, "columns left to right", 256),
        ):
            if not 0 <= first < last <= limit:
                raise UserError(f"view: {name} must be a part of 0 to {limit}, got {first} to {last}")
        if self.height < 1 or self.width < 1 or self.mark < 0:
            raise UserError(f"view: height and width must be at least 1, mark at least 0, got {self}")
        if self.brightness not in WEIGHTS:
            raise UserError(f"view: brightness must be one of {', '.join(WEIGHTS)}, got {self.brightness!r}")

    @property
    def shape(self) -> tuple[int, int]:
        return (self.height, self.width)

    def spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and columns of the screen that each output row and column covers, with their weights.

        Two arrays int64 [height, 1 + r] and [width, 1 + c] for `reduce_screen`: index of the first row or column, then
        the weights of it and the following ones. r and c are multiples of 4. The weight of a whole pixel is `height` or
        `width`.
        """
        return _spans(self.top, self.bottom, self.height), _spans(self.left, self.right, self.width)


def _spans(first: int, last: int, cells: int) -> NDArray[np.int64]:
    borders = first * cells + np.arange(cells + 1, dtype=np.int64) * (last - first)
    begin, end = borders[:-1, None], borders[1:, None]
    first_pixel = begin // cells
    most = int((-(-end // cells) - first_pixel).max())
    pixels = first_pixel + np.arange(-(-most // 4) * 4)
    covered = np.minimum(end, (pixels + 1) * cells) - np.maximum(begin, pixels * cells)
    return np.concatenate([first_pixel, covered.clip(0)], axis=1)


VIEWS = {
    "50x60": View(32, 232, 8, 248, 50, 60, mark=8),
    "50x60-red": View(32, 232, 8, 248, 50, 60, mark=8, brightness="red"),
    "84x84": View(0, 240, 0, 256, 84, 84),
}
"""`50x60-red` (default): without the status bar and eight columns on either side, 4x4 area means, with the mark; agents
learn faster with it, and updates are cheaper. `50x60`: the same in gray. `84x84`: the whole screen in gray, as in most
publications."""


@helper
def _total(weights: Any) -> Any:
    total = 0
    for i in range(weights.size):
        total += weights[i]
    return total


@helper
def _sum_lines(light: Any, span: Any, sums: Any) -> None:
    """Write the weighted sum of a span's lines, for each column, to `sums`, int32 [256 + c]."""
    for x in range(256):
        sums[x] = 0
    for i in range(1, span.size):
        if span[i] > 0:
            weight, line = span[i], light[(span[0] + i - 1) * 256 :]
            for x in range(256):
                sums[x] += weight * line[x]


@helper
def _sum_columns(sums: Any, spans: Any, totals: Any) -> None:
    """Write the weighted sum of each span's columns to `totals`."""
    for j in range(totals.size):
        totals[j] = 0
    for i in range(1, spans.shape[1], 4):
        for j in range(totals.size):
            x, weights = spans[j, 0] + i - 1, spans[j, i:]
            totals[j] += (
                weights[0] * sums[x] + weights[1] * sums[x + 1] + weights[2] * sums[x + 2] + weights[3] * sums[x + 3]
            )


@kernel("uint16[1], int64[2], int64[2], uint8[1]")
def reduce_screen(light: Any, rows: Any, columns: Any, out: Any) -> None:
    """Write the area means of a screen to `out`; halves are rounded up. Lines are summed first, then columns.

    light: uint16 [240 * 256], brightness in units of 4/1000 (0 to 63,750). rows, columns: from `View.spans`. out: uint8
    [height * width].
    """
    height, width = rows.shape[0], columns.shape[0]
    sums = np.zeros(256 + columns.shape[1], np.int32)
    totals = np.empty(width, np.int64)
    area = 250 * _total(rows[0, 1:]) * _total(columns[0, 1:])  # of a cell, in weights and units of `light`
    # The added half keeps the product so far from the next integer that rounding errors can't reach it.
    shift, scale = area // 2 + 0.5, 1.0 / area
    for i in range(height):
        _sum_lines(light, rows[i], sums)
        _sum_columns(sums, columns, totals)
        line = out[i * width :]
        for j in range(width):
            line[j] = np.int64((totals[j] + shift) * scale)


@kernel("uint8[3], int64, int64, int64, int64[2], int64[2], uint8[1]")
def reduce_rgb(rgb: Any, of_red: Any, of_green: Any, of_blue: Any, rows: Any, columns: Any, out: Any) -> None:
    """`reduce_screen` from RGB, uint8 [3, 240, 256], with the `WEIGHTS`; nes-py's colours are multiples of 4."""
    light = np.empty(240 * 256, np.uint16)
    for y in range(240):
        for x in range(256):
            red, green, blue = rgb[0, y, x], rgb[1, y, x], rgb[2, y, x]
            light[y * 256 + x] = (of_red * red + of_green * green + of_blue * blue) // 4
    reduce_screen(light, rows, columns, out)
