"""Viewers: each follows one game of the batched board games, to draw it for people.

The games store no colours. A viewer of Tetris is told each placement and repeats it when a picture is wanted, so that
locked cells keep the colour of their piece. Training only notes a piece and an action, and only while somebody watches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.envs.boards.drops import Drop, entry, landing, landings
from engine.envs.boards.pictures import GHOSTS, UNSEEN, Picture, draw_snake, draw_tetris
from engine.envs.boards.snake import MOVES, SnakeLanes
from engine.envs.boards.tetris import TetrisLanes
from engine.protocol.messages import Thought

_MOST_STEPS = 1000
"""Steps after the last picture in which a viewer still follows its lane."""


class Viewer(Protocol):
    """Follows one lane from the moment that it is made."""

    steps: int
    """Environment steps since the last picture."""

    def before_step(self, action: int) -> None:
        """The lane is about to take this action."""

    def new_episode(self) -> None:
        """The lane has begun an episode in its last step."""

    def draw(self, thought: Thought | None = None, fallen: float = 0.0) -> Picture:
        """A picture of the lane, RGB uint8 [240, 256, 3], with the agent's decision, if it is known.

        fallen: the part of its way down that the piece of Tetris has fallen.
        """

    def facts(self) -> dict[str, int]:
        """Values of the game to show beside the picture."""


class Viewers:
    """The viewers of the lanes that somebody watches. A lane that nobody looks at for long loses its viewer.

    Args:
        new_viewer: makes the viewer of a lane.
    """

    def __init__(self, new_viewer: Callable[[int], Viewer]) -> None:
        self._new_viewer = new_viewer
        self._of: dict[int, Viewer] = {}

    def __getitem__(self, lane: int) -> Viewer:
        if lane not in self._of:
            self._of[lane] = self._new_viewer(lane)
        return self._of[lane]

    def before_step(self, actions: NDArray[np.int64]) -> None:
        """All lanes are about to take these actions [lanes]."""
        for lane, viewer in list(self._of.items()):
            viewer.before_step(int(actions[lane]))
            if viewer.steps > _MOST_STEPS:
                del self._of[lane]

    def after_step(self, ended: NDArray[np.bool_]) -> None:
        """Episodes have `ended` in these lanes, bool [lanes]."""
        for lane, viewer in self._of.items():
            if ended[lane]:
                viewer.new_episode()

    def clear(self) -> None:
        """The games have changed in another way than by steps."""
        self._of.clear()


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


class TetrisViewer:
    """Draws a game of Tetris. Cells that were filled before it came are gray."""

    def __init__(self, games: TetrisLanes, lane: int) -> None:
        self._games, self._lane = games, lane
        self._cells = np.zeros((games.height, games.width), np.uint8)  # contents as in `pictures.COLOURS`
        self._placed: list[tuple[int, int]] = []  # pieces and actions since the last picture or the episode's start
        self.steps = 0

    def before_step(self, action: int) -> None:
        self.steps += 1
        self._placed.append((self._games.piece(self._lane), action))

    def new_episode(self) -> None:
        self._placed.clear()
        self._cells[:] = 0

    def draw(self, thought: Thought | None = None, fallen: float = 0.0) -> Picture:
        """See `Viewer`. The piece falls where it will be placed; ghosts are the best three placements."""
        columns, piece = self._games.columns(self._lane), self._games.piece(self._lane)
        if thought is None:
            return self.draw_piece(entry(columns, piece))
        shown = Drop(piece, *divmod(thought.action, self._games.width))
        landed = landing(columns, shown)
        if landed is not None:
            shown = shown._replace(row=int(fallen * landed.row))
        return self.draw_piece(shown, best_drops(columns, piece, thought.q_values))

    def draw_piece(
        self, piece: Drop | None, ghosts: Sequence[Drop] = (), *, hold: bool = False, held: int | None = None
    ) -> Picture:
        """The board with these arguments of `draw_tetris`."""
        next_piece = self._games.next_piece(self._lane)
        return draw_tetris(self.cells(), piece, ghosts, next_piece=next_piece, hold=hold, held=held)

    def cells(self) -> NDArray[np.uint8]:
        """Contents of the board, uint8 [height, width]."""
        for placed, action in self._placed:
            self._cells = _after(self._cells, Drop(placed, *divmod(action, self._games.width)))
        self._placed.clear()
        self.steps = 0
        filled = _bits(self._games.columns(self._lane), len(self._cells))
        self._cells = np.where(filled, np.where(self._cells, self._cells, UNSEEN), 0).astype(np.uint8)
        return self._cells

    def facts(self) -> dict[str, int]:
        filled = _bits(self._games.columns(self._lane), self._games.height)
        return {"lines": self._games.lines(self._lane), "height": int(filled.any(1).sum())}


def best_drops(columns: list[int], piece: int, q_values: list[float]) -> list[Drop]:
    """Where a piece lands by the best actions, the best first. Placements that fill the same cells count once."""
    drops: list[Drop] = []
    for _, drop in sorted(landings(columns, piece), key=lambda each: -q_values[each[0]]):
        if all(set(drop.cells) != set(other.cells) for other in drops):
            drops.append(drop)
        if len(drops) == len(GHOSTS):
            break
    return drops


def _after(cells: NDArray[np.uint8], drop: Drop) -> NDArray[np.uint8]:
    """The board after a placement, without full lines."""
    height, width = cells.shape
    columns = [int(bits) for bits in (cells > 0).T @ (1 << np.arange(height))]
    landed = landing([bits | -1 << height for bits in columns], drop)
    if landed is None:  # the episode ended with it
        return cells
    for x, y in landed.cells:
        cells[y, x] = drop.piece + 1
    kept = cells[~cells.all(1)]
    return np.concatenate((np.zeros((height - len(kept), width), np.uint8), kept))


def _bits(columns: list[int], height: int) -> NDArray[np.bool_]:
    """Which cells of columns are filled, bool [height, width]."""
    return np.array(columns) >> np.arange(height)[:, None] & 1 > 0
