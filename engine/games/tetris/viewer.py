"""Draws a game of Tetris for people, and finds where pieces land on one board, in plain integers.

`columns` are those of `TetrisLanes.columns`: bit y of a column is its row y from the top, and bits below the floor are
set. A placement is (piece, rotation, column), as in `TetrisLanes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.envs.lanes import GROUND, Picture
from engine.games.boards.viewers import Colours, paint
from engine.games.tetris.rules import PIECES, ROTATIONS, TetrisLanes
from engine.protocol.messages import SCREEN_SHAPE, Thought


def _cells(box: str) -> tuple[tuple[int, int], ...]:
    return tuple((x, y) for y, row in enumerate(box.split("|")) for x, cell in enumerate(row) if cell == "#")


CELLS = tuple(tuple(_cells(box) for box in turns) for turns in PIECES)
"""The cells (x, y) of each piece in each rotation, relative to its box."""
UPRIGHT = (3, 0, 0, 0, 2, 3, 1)
"""The rotation in which each piece enters usual games: flat side down."""


class Drop(NamedTuple):
    """A piece somewhere on a board. `row` is that of the top edge of its box."""

    piece: int
    rotation: int
    column: int
    row: int = 0

    @property
    def cells(self) -> tuple[tuple[int, int], ...]:
        """Its cells (column, row) on the board."""
        return tuple((self.column + x, self.row + y) for x, y in CELLS[self.piece][self.rotation])


def landing(columns: Sequence[int], drop: Drop) -> Drop | None:
    """The piece where it comes to rest if it drops in straight from above; None if that placement is illegal."""
    taken = 0
    for x, y in CELLS[drop.piece][drop.rotation]:
        if drop.column + x >= len(columns) or columns[drop.column + x] & (2 << y) - 1:
            return None
        taken |= columns[drop.column + x] >> y
    return drop._replace(row=(taken & -taken).bit_length() - 2)


def landings(columns: Sequence[int], piece: int) -> Iterator[tuple[int, Drop]]:
    """All legal actions with a piece, and where it comes to rest."""
    width = len(columns)
    for action in range(ROTATIONS * width):
        landed = landing(columns, Drop(piece, *divmod(action, width)))
        if landed is not None:
            yield action, landed


def entry(columns: Sequence[int], piece: int) -> Drop | None:
    """Return where a piece enters the board: upright, in the legal column that is nearest to the middle.

    In another rotation if this one has no legal column; None if none has.
    """
    for rotation in range(UPRIGHT[piece], UPRIGHT[piece] + ROTATIONS):
        drop = Drop(piece, rotation % ROTATIONS, 0)
        room = len(columns) - 1 - max(x for x, _ in drop.cells)
        for column in sorted(range(room + 1), key=lambda column: abs(column - room // 2)):
            if landing(columns, drop._replace(column=column)) is not None:
                return drop._replace(column=column)
    return None


UNSEEN = 8
"""A filled cell of Tetris whose piece is unknown. 0 is an empty cell, and the others are the pieces plus 1."""
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
_BOX = 4  # cells
_BOXES = 5  # columns of cells for a box beside the board, with the gap


class TetrisViewer:
    """Draws a game of Tetris. Cells that were filled before it came are gray."""

    def __init__(self, games: TetrisLanes, lane: int) -> None:
        self._games, self._lane = games, lane
        self._cells = np.zeros((games.height, games.width), np.uint8)  # contents as in `COLOURS`
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
    """Return where a piece lands by the best actions, the best first. Placements that fill the same cells count
    once."""
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
    """Return which cells of columns are filled, bool [height, width]."""
    return np.array(columns) >> np.arange(height)[:, None] & 1 > 0


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
    paint(picture, COLOURS[cells], side, top, left)
    falling = set() if piece is None else set(piece.cells)
    for ghost, strength in reversed(list(zip(ghosts, GHOSTS, strict=False))):
        rim = GROUND + strength * (COLOURS[ghost.piece + 1] - GROUND)
        for x, y in set(ghost.cells) - falling:
            cell = picture[top + y * side :, left + x * side :][:side, :side]
            cell[:] = rim
            cell[side // 5 : -(side // 5), side // 5 : -(side // 5)] = GROUND + 0.4 * (rim - GROUND)
    for x, y in falling:
        assert piece is not None
        paint(picture, COLOURS[None, piece.piece + 1, None], side, top + y * side, left + x * side)
    if hold:
        paint(picture, _boxed(held), small, top, left - _BOXES * small)
    if next_piece is not None:
        paint(picture, _boxed(next_piece), small, top, left + width * side + (_BOXES - _BOX) * small)
    return picture


def _boxed(piece: int | None) -> Colours:
    """A box with a piece, or an empty one: [4, 4, 3]."""
    cells = np.zeros((_BOX, _BOX), np.uint8)
    if piece is not None:
        for x, y in CELLS[piece][UPRIGHT[piece]]:
            cells[y + 1, x] = piece + 1
    return COLOURS[cells]
