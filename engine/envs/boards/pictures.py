"""Pictures of Tetris and Snake for people, RGB uint8 `SCREEN_SHAPE`.

Terminals without images shrink them to a few dozen half blocks, so areas of colour tell everything: no text, no lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.envs.boards.drops import CELLS, UPRIGHT, Drop
from engine.envs.emulators.protocol import SCREEN_SHAPE

Picture = NDArray[np.uint8]
Colours = NDArray[np.float64]

UNSEEN = 8
"""A filled cell of Tetris whose piece is unknown. 0 is an empty cell, and the others are the pieces plus 1."""
GROUND = np.array((24, 26, 33), np.float64)
COLOURS = np.array(
    [
        GROUND,
        (0, 200, 225),  # I
        (80, 200, 90),  # S
        (230, 65, 75),  # Z
        (240, 210, 50),  # O
        (175, 85, 220),  # T
        (245, 150, 45),  # L
        (65, 105, 240),  # J
        (128, 132, 142),
    ],
    np.float64,
)
"""Of each content of a cell of Tetris, float64 [9, 3]."""
GHOSTS = (0.75, 0.42, 0.25)
"""Strengths of the colours of ghosts, the best first."""
_BODY, _TAIL = np.array((120, 220, 110), np.float64), np.array((24, 78, 58), np.float64)
_HEAD, _EYES, _FRUIT = (np.array(each, np.float64) for each in ((255, 220, 80), (30, 20, 10), (235, 60, 75)))
_BOX = 4  # cells
_BOXES = 5  # columns of cells for a box beside the board, with the gap


def draw_tetris(
    cells: NDArray[np.uint8],
    piece: Drop | None = None,
    ghosts: Sequence[Drop] = (),
    *,
    next_piece: int | None = None,
    hold: bool = False,
    held: int | None = None,
) -> Picture:
    """A board of Tetris.

    Args:
        cells: contents of the board, uint8 [height, width], as in `COLOURS`.
        piece: the falling piece.
        ghosts: where a piece would land, the best placement first.
        next_piece: shown to the right of the board, if it is known.
        hold: whether a box to the left of the board shows the `held` piece.
    """
    height, width = cells.shape
    boxes = hold + (next_piece is not None)
    screen_height, screen_width, _ = SCREEN_SHAPE
    side = min(screen_height // height, screen_width // (width + 3 * boxes))
    small = min(side, (screen_width - width * side) // (_BOXES * max(boxes, 1)))
    top = (screen_height - height * side) // 2
    left = (screen_width - width * side - boxes * _BOXES * small) // 2 + hold * _BOXES * small
    picture = np.zeros(SCREEN_SHAPE, np.uint8)
    _paint(picture, COLOURS[cells], side, top, left)
    falling = set() if piece is None else set(piece.cells)
    for ghost, strength in reversed(list(zip(ghosts, GHOSTS, strict=False))):
        rim = GROUND + strength * (COLOURS[ghost.piece + 1] - GROUND)
        for x, y in set(ghost.cells) - falling:
            cell = picture[top + y * side :, left + x * side :][:side, :side]
            cell[:] = rim
            cell[side // 5 : -(side // 5), side // 5 : -(side // 5)] = GROUND + 0.4 * (rim - GROUND)
    for x, y in falling:
        assert piece is not None
        _paint(picture, COLOURS[None, piece.piece + 1, None], side, top + y * side, left + x * side)
    if hold:
        _paint(picture, _boxed(held), small, top, left - _BOXES * small)
    if next_piece is not None:
        _paint(picture, _boxed(next_piece), small, top, left + width * side + (_BOXES - _BOX) * small)
    return picture


def draw_snake(
    path: Sequence[tuple[int, int]], fruit: tuple[int, int], shape: tuple[int, int], move: tuple[int, int] | None
) -> Picture:
    """A board of Snake.

    Args:
        path: cells (row, column) of the body, from tail to head.
        fruit: its cell.
        shape: height and width of the board.
        move: the (row, column) offset in which the head looks; None if that is unknown.
    """
    height, width = shape
    side = min(SCREEN_SHAPE[0] // height, SCREEN_SHAPE[1] // width)
    top, left = (SCREEN_SHAPE[0] - height * side) // 2, (SCREEN_SHAPE[1] - width * side) // 2
    picture = np.zeros(SCREEN_SHAPE, np.uint8)
    _paint(picture, np.broadcast_to(GROUND, (height, width, 3)), side, top, left)
    gap = max(1, side // 8)

    def block(row: float, column: float, colour: Colours) -> None:
        """Paint a cell without its rim; half numbers are between two cells."""
        y, x = top + round(row * side) + gap, left + round(column * side) + gap
        picture[y : y + side - 2 * gap, x : x + side - 2 * gap] = colour

    block(*fruit, _FRUIT)
    for index, (row, column) in enumerate(path):
        colour = _TAIL + (index + 1) / len(path) * (_BODY - _TAIL)
        block(row, column, colour)
        if index:  # joined to the cell before, so that neighbours on the path differ from neighbours beside it
            block((row + path[index - 1][0]) / 2, (column + path[index - 1][1]) / 2, colour)
    head = path[-1]
    block(*head, _HEAD)
    if move is not None:
        _paint_eyes(picture, top + head[0] * side, left + head[1] * side, side, move)
    return picture


def _paint(picture: Picture, colours: Colours, side: int, top: int, left: int) -> None:
    """Paint cells [height, width, 3] as squares, those that are not ground with a dark edge on two sides."""
    cells = colours.astype(np.uint8)
    ground = (cells == GROUND).all(2)
    pixels, filled = (each.repeat(side, axis=0).repeat(side, axis=1) for each in (cells, ~ground))
    rows, columns = (np.arange(length) % side == 0 for length in filled.shape)
    pixels[filled & (rows[:, None] | columns)] //= 2
    picture[top : top + len(pixels), left : left + pixels.shape[1]] = pixels


def _boxed(piece: int | None) -> Colours:
    """A box with a piece, or an empty one: [4, 4, 3]."""
    cells = np.zeros((_BOX, _BOX), np.uint8)
    if piece is not None:
        for x, y in CELLS[piece][UPRIGHT[piece]]:
            cells[y + 1, x] = piece + 1
    return COLOURS[cells]


def _paint_eyes(picture: Picture, top: int, left: int, side: int, move: tuple[int, int]) -> None:
    """Paint two eyes in the front half of a head."""
    size = max(1, side // 4)
    middle, out = (side - size) // 2, side // 4
    down, right = move
    for across in (-1, 1):
        y, x = (middle + out * each for each in (down + across * right, right + across * down))
        picture[top + y : top + y + size, left + x : left + x + size] = _EYES
