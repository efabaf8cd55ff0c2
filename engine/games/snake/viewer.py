"""Draws a game of Snake for people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.envs.lanes import GROUND, Picture
from engine.games.boards.viewers import Colours, paint
from engine.games.snake.rules import MOVES, SnakeLanes
from engine.protocol.messages import SCREEN_SHAPE, Thought

_BODY, _TAIL = np.array((120, 220, 110), np.float64), np.array((24, 78, 58), np.float64)
_HEAD, _EYES, _FRUIT = (np.array(each, np.float64) for each in ((255, 220, 80), (30, 20, 10), (235, 60, 75)))


class SnakeViewer:
    """Draws a game of Snake."""

    def __init__(self, games: SnakeLanes, lane: int) -> None:
        self._games, self._lane = games, lane
        self._moved: tuple[int, int] | None = None
        self.steps = 0

    def before_step(self, action: int) -> None:
        self.steps += 1
        self._moved = MOVES[action]

    def new_episode(self) -> None:
        self._moved = None

    def draw(self, thought: Thought | None = None, fallen: float = 0.0) -> Picture:
        """See `Viewer`. The head looks where it came from, or, at the start, where it goes."""
        self.steps = 0
        _, height, width = self._games.frame_shape
        path = [divmod(cell, width) for cell in self._games.path(self._lane)]
        moved = self._moved
        if len(path) > 1:
            moved = (path[-1][0] - path[-2][0], path[-1][1] - path[-2][1])
        return draw_snake(path, divmod(self._games.fruit(self._lane), width), (height, width), moved)

    def facts(self) -> dict[str, int]:
        return {"fruits": len(self._games.path(self._lane)) - 1}


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
    paint(picture, np.broadcast_to(GROUND, (height, width, 3)), side, top, left)
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


def _paint_eyes(picture: Picture, top: int, left: int, side: int, move: tuple[int, int]) -> None:
    """Paint two eyes in the front half of a head."""
    size = max(1, side // 4)
    middle, out = (side - size) // 2, side // 4
    down, right = move
    for across in (-1, 1):
        y, x = (middle + out * each for each in (down + across * right, right + across * down))
        picture[top + y : top + y + size, left + x : left + x + size] = _EYES
