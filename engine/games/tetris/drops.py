"""Where the pieces of Tetris land on one board, in plain integers: for pictures, and for people who play.

`columns` are those of `TetrisLanes.columns`: bit y of a column is its row y from the top, and bits below the floor are
set. A placement is (piece, rotation, column), as in `TetrisLanes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.games.tetris.rules import PIECES, ROTATIONS


def _cells(box: str) -> tuple[tuple[int, int], ...]:
    return tuple((x, y) for y, row in enumerate(box.split("|")) for x, cell in enumerate(row) if cell == "#")


CELLS = tuple(tuple(_cells(box) for box in turns) for turns in PIECES)
"""The cells (x, y) of each piece in each rotation, relative to its box."""
UPRIGHT = (3, 0, 0, 0, 2, 3, 1)
"""The rotation in which each piece enters usual games: flat side down."""
_CENTRED = (((0, 1), (2, 0), (0, 2), (1, 0)), ((0, 0), (1, 0), (0, 1), (0, 0)))
"""Where I, and the other pieces but O, lie in a box that turns around its centre, by quarter turns from `UPRIGHT`."""
_LIFT = 2
"""Most rows by which a turn lifts a piece."""


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
    """Where a piece enters the board: upright, in the legal column that is nearest to the middle.

    In another rotation if this one has no legal column; None if none has.
    """
    for rotation in range(UPRIGHT[piece], UPRIGHT[piece] + ROTATIONS):
        drop = Drop(piece, rotation % ROTATIONS, 0)
        room = len(columns) - 1 - max(x for x, _ in drop.cells)
        for column in sorted(range(room + 1), key=lambda column: abs(column - room // 2)):
            if landing(columns, drop._replace(column=column)) is not None:
                return drop._replace(column=column)
    return None


def moved(columns: Sequence[int], drop: Drop, by: int) -> Drop | None:
    """A falling piece one column further; None if it can't have come straight down there."""
    there = drop._replace(column=drop.column + by)
    landed = landing(columns, there) if there.column >= 0 else None
    return None if landed is None or landed.row < there.row else there


def turned(columns: Sequence[int], drop: Drop, by: int) -> Drop | None:
    """A falling piece after `by` quarter turns clockwise, around its centre; None if there is no room.

    Beside walls and other pieces it moves by up to two columns, and up by up to two rows.
    """
    old, new = _offset(drop.piece, drop.rotation), _offset(drop.piece, (drop.rotation + by) % ROTATIONS)
    wanted = Drop(
        drop.piece,
        (drop.rotation + by) % ROTATIONS,
        drop.column + new[0] - old[0],
        max(0, drop.row + new[1] - old[1]),
    )
    for aside in (0, -1, 1, -2, 2):
        there = wanted._replace(column=wanted.column + aside)
        landed = landing(columns, there) if there.column >= 0 else None
        if landed is not None and landed.row >= there.row - _LIFT:
            return there._replace(row=min(there.row, landed.row))
    return None


def _offset(piece: int, rotation: int) -> tuple[int, int]:
    """Where a piece lies in the box that turns: (column, row)."""
    if PIECES[piece][0] == PIECES[piece][1]:
        return 0, 0
    return _CENTRED[piece > 0][(rotation - UPRIGHT[piece]) % ROTATIONS]
