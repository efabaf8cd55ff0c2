"""What pictures of boards for people have in common, RGB uint8 `SCREEN_SHAPE`.

Terminals without images shrink them to a few dozen half blocks, so areas of colour tell everything: no text, no lines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Colours = NDArray[np.float64]

GROUND = np.array((24, 26, 33), np.float64)


def paint(picture: Picture, colours: Colours, side: int, top: int, left: int) -> None:
    """Paint cells [height, width, 3] as squares, those that are not ground with a dark edge on two sides."""
    cells = colours.astype(np.uint8)
    ground = (cells == GROUND).all(2)
    pixels, filled = (each.repeat(side, axis=0).repeat(side, axis=1) for each in (cells, ~ground))
    rows, columns = (np.arange(length) % side == 0 for length in filled.shape)
    pixels[filled & (rows[:, None] | columns)] //= 2
    picture[top : top + len(pixels), left : left + pixels.shape[1]] = pixels
