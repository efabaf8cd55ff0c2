"""The agent's picture: a crop of the screen in gray, reduced by area means.

All arithmetic is in integers and in one place, so that a picture is the same whichever console drew it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.envs.jit import helper, kernel


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
        """Borders of the reduced rows and columns in units of 1/height and 1/width of a pixel, for `reduce_luma`."""
        rows = self.top * self.height + np.arange(self.height + 1) * (self.bottom - self.top)
        columns = self.left * self.width + np.arange(self.width + 1) * (self.right - self.left)
        return rows.astype(np.int64), columns.astype(np.int64)


VIEWS = {
    "50x60": View(32, 232, 8, 248, 50, 60),
    "84x84": View(0, 240, 0, 256, 84, 84),
}
"""`50x60`: without the status bar and eight columns on either side, 4x4 area means (the default: it learns as well and
costs a third of the time). `84x84`: the whole screen, as in most publications."""


@helper
def reduce_luma(luma: Any, rows: Any, columns: Any, sums: Any, out: Any) -> None:
    """Area means of `luma` into `out`, rounded halves up.

    luma: int32 [240 * 256], brightness in thousandths (0 to 255,000). rows, columns: from `View.spans`. sums: int64
    [256], scratch. out: uint8 [height * width].
    """
    height, width = rows.size - 1, columns.size - 1
    left, right = columns[0] // width, -(-columns[width] // width)
    area = (rows[height] - rows[0]) // height * ((columns[width] - columns[0]) // width) * 1000
    for i in range(height):
        for x in range(left, right):
            sums[x] = 0
        top, bottom = rows[i], rows[i + 1]
        for y in range(top // height, -(-bottom // height)):
            weight = min(bottom, (y + 1) * height) - max(top, y * height)
            for x in range(left, right):
                sums[x] += weight * luma[y * 256 + x]
        for j in range(width):
            total = 0
            first, last = columns[j], columns[j + 1]
            for x in range(first // width, -(-last // width)):
                total += (min(last, (x + 1) * width) - max(first, x * width)) * sums[x]
            # total is in units of 1 / (height * width) pixels; a cell holds area / 1000 of them
            out[i * width + j] = (2 * total + area) // (2 * area)


@kernel
def reduce_rgb(pixels: Any, rows: Any, columns: Any, out: Any) -> None:
    """Area means of a screen of words 0x00RRGGBB, uint32 [240, 256], into `out`, uint8 [height * width]."""
    luma = np.empty(240 * 256, np.int32)
    for y in range(240):
        for x in range(256):
            word = np.int64(pixels[y, x])
            luma[y * 256 + x] = 299 * ((word >> 16) & 255) + 587 * ((word >> 8) & 255) + 114 * (word & 255)
    reduce_luma(luma, rows, columns, np.empty(256, np.int64), out)
