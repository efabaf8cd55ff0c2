"""Pictures of an environment for people, RGB uint8 `SCREEN_SHAPE`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.emulators.protocol import SCREEN_SHAPE
from engine.games.boards.pictures import GROUND, Picture

_COARSE = 64
"""Images with a shorter side have cells, which are to stay sharp."""
_BAR, _CENTRE = (96, 190, 240), (90, 96, 110)
_HUES = np.array(
    [(235, 60, 75), (96, 190, 240), (255, 220, 80), (120, 220, 110), (190, 120, 240), (255, 150, 60), (90, 220, 210)],
    np.float64,
)  # fmt: skip


def fitted(image: NDArray[np.generic]) -> Picture:
    """An RGB or gray image [height, width(, planes)] of any size, as large as it fits. Floats are shares of white, and
    truth values white. With several planes, the first three are red, green and blue; a missing one is black."""
    white = 255 if image.dtype.kind in "fb" else 1
    pixels = image if image.dtype == np.uint8 else (image.astype(np.float64) * white).clip(0, 255).astype(np.uint8)
    pixels = np.atleast_3d(pixels)
    height, width, planes = pixels.shape
    pixels = np.repeat(pixels, 3, axis=2) if planes == 1 else np.pad(pixels, ((0, 0), (0, 0), (0, max(0, 3 - planes))))
    scale = min(SCREEN_SHAPE[0] / height, SCREEN_SHAPE[1] / width)
    coarse = min(height, width) < _COARSE and scale >= 1
    scale = int(scale) if coarse else scale
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    how = Image.Resampling.NEAREST if coarse else Image.Resampling.BILINEAR if scale > 1 else Image.Resampling.BOX
    drawn = np.asarray(Image.fromarray(np.ascontiguousarray(pixels[:, :, :3])).resize(size, how))
    picture = np.zeros(SCREEN_SHAPE, np.uint8)
    top, left = (SCREEN_SHAPE[0] - size[1]) // 2, (SCREEN_SHAPE[1] - size[0]) // 2
    picture[top : top + size[1], left : left + size[0]] = drawn
    return picture


def of_planes(frame: NDArray[np.uint8]) -> Picture:
    """A board [planes, height, width]: each plane has a colour, and the last one that is set shows."""
    colours = np.broadcast_to(GROUND, (*frame.shape[1:], 3)).copy()
    for plane, cells in enumerate(frame):
        share = cells[:, :, None] / 255
        colours = colours * (1 - share) + _HUES[plane % len(_HUES)] * share
    return fitted(colours.astype(np.uint8))


def of_vector(numbers: NDArray[np.float32], largest: NDArray[np.float32]) -> Picture:
    """A bar for each number [n], from the centre to the left or right; as long as it is beside its `largest` [n]."""
    picture = np.empty(SCREEN_SHAPE, np.uint8)
    picture[:] = GROUND.astype(np.uint8)
    height, width, _ = SCREEN_SHAPE
    edges = np.linspace(0, height, len(numbers) + 1).astype(int)
    centre = width // 2
    for number, most, top, bottom in zip(numbers, largest, edges[:-1], edges[1:], strict=True):
        end = centre + round(float(number / most if most else 0) * (centre - 4))
        gap = (bottom - top) // 6
        picture[top + gap : max(top + gap + 1, bottom - gap), min(centre, end) : max(centre, end)] = _BAR
    picture[:, centre - 1 : centre + 1] = _CENTRE
    return picture
