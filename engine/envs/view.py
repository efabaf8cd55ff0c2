"""The agent's picture: a crop of the screen in gray, reduced by area means.

All arithmetic is in integers and in one place, so that a picture is the same whichever console drew it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.jit import helper, kernel


@dataclass(frozen=True)
class View:
    """Rows `top` to `bottom` and columns `left` to `right` (exclusive) of the 240x256 screen as `height` x `width`."""

    top: int
    bottom: int
    left: int
    right: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return (self.height, self.width)

    def spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which rows and columns of the screen a reduced one covers, and how much of its first and last one.

        Two arrays int64 [height, 4] and [width, 4] for `reduce_luma`: first, last (exclusive), weight of the first,
        weight of the last. A whole pixel weighs `height` or `width`; the last weighs 0 where there is only one.
        """
        return _spans(self.top, self.bottom, self.height), _spans(self.left, self.right, self.width)


def _spans(first: int, last: int, cells: int) -> NDArray[np.int64]:
    borders = first * cells + np.arange(cells + 1, dtype=np.int64) * (last - first)
    begin, end = borders[:-1], borders[1:]
    first_pixel, after = begin // cells, -(-end // cells)
    first_weight = np.minimum(end, (first_pixel + 1) * cells) - begin
    last_weight = np.where(after - first_pixel > 1, end - (after - 1) * cells, 0)
    return np.stack([first_pixel, after, first_weight, last_weight], axis=1)


VIEWS = {
    "50x60": View(32, 232, 8, 248, 50, 60),
    "84x84": View(0, 240, 0, 256, 84, 84),
}
"""`50x60`: without the status bar and eight columns on either side, 4x4 area means (the default: it learns as well and
costs a third of the time). `84x84`: the whole screen, as in most publications."""


@helper
def _extent(spans: Any) -> Any:
    """How many pixels the cells cover together, which is the weight of one cell."""
    cells = spans.shape[0]
    weight = spans[0, 2] + spans[0, 3]
    return weight + max(spans[0, 1] - spans[0, 0] - 2, 0) * cells


@helper
def reduce_luma(luma: Any, rows: Any, columns: Any, sums: Any, out: Any) -> None:
    """Area means of `luma` into `out`, rounded halves up.

    luma: int32 [240 * 256], brightness in thousandths (0 to 255,000). rows, columns: from `View.spans`. sums: int64
    [256], scratch. out: uint8 [height * width].
    """
    height, width = rows.shape[0], columns.shape[0]
    left, right = columns[0, 0], columns[width - 1, 1]
    tall, wide = _extent(rows), _extent(columns)
    area = 1000 * tall * wide  # of a cell, in units of 1 / (height * width) pixels and thousandths
    half = area // 2  # the area is even
    for i in range(height):
        top, bottom, weight, last_weight = rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3]
        for x in range(left, right):
            sums[x] = weight * luma[top * 256 + x]
        for y in range(top + 1, bottom - 1):
            for x in range(left, right):
                sums[x] += height * luma[y * 256 + x]
        if last_weight > 0:
            for x in range(left, right):
                sums[x] += last_weight * luma[(bottom - 1) * 256 + x]
        for j in range(width):
            first, after = columns[j, 0], columns[j, 1]
            total = columns[j, 2] * sums[first] + columns[j, 3] * sums[after - 1]
            for x in range(first + 1, after - 1):
                total += width * sums[x]
            out[i * width + j] = (total + half) // area


@kernel
def reduce_rgb(rgb: Any, rows: Any, columns: Any, out: Any) -> None:
    """Area means of a screen, uint8 [240, 256, 3] in any memory order, into `out`, uint8 [height * width]."""
    luma = np.empty(240 * 256, np.int32)
    for y in range(240):
        for x in range(256):
            red, green, blue = np.int64(rgb[y, x, 0]), np.int64(rgb[y, x, 1]), np.int64(rgb[y, x, 2])
            luma[y * 256 + x] = 299 * red + 587 * green + 114 * blue
    reduce_luma(luma, rows, columns, np.empty(256, np.int64), out)
