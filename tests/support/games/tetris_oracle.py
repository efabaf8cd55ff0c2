"""Tetris on a grid of cells: one game, no tensors. The caller decides which pieces come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.games.tetris.rules import LINE_REWARDS, PIECES

BOXES = np.array([[[[c == "#" for c in row] for row in box.split("|")] for box in turns] for turns in PIECES])


class TetrisOracle:
    """A game; `grid` is bool [height + 3, width + 3], because boxes may extend over the bottom and the right edge.

    With `next_piece`, the caller gives the piece after the current one, and `step` makes it the current one.
    """

    def __init__(
        self, height: int, width: int, *, reward: str, time_limit: int, truncate: bool, next_piece: bool
    ) -> None:
        self.height, self.width, self.shows_next = height, width, next_piece
        self.reward, self.time_limit, self.truncate = reward, time_limit, truncate

    def begin(self, piece: int, upcoming: int) -> None:
        self.grid = np.zeros((self.height + 3, self.width + 3), bool)
        self.piece, self.upcoming, self.steps, self.lines, self.total = piece, upcoming, 0, 0, 0.0
        self.mask = self.legal()

    def fits(self, box: NDArray[np.bool_], y: int, x: int) -> bool:
        """Whether a box at a row and column overlaps neither filled cells nor the floor."""
        on_floor = y + int(np.flatnonzero(box.any(1)).max()) < self.height
        return on_floor and not (self.grid[y : y + 4, x : x + 4] & box).any()

    def legal(self) -> NDArray[np.bool_]:
        """Legal actions, bool [4 * width]."""
        found = []
        for box in BOXES[self.piece]:
            swept = np.logical_or.accumulate(box[::-1], axis=0)[::-1]  # with the cells that it comes down through
            right = int(np.flatnonzero(box.any(0)).max())
            found += [x + right < self.width and self.fits(swept, 0, x) for x in range(self.width)]
        return np.array(found)

    def step(self, action: int, drawn: int) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated. drawn: the piece that comes after the known ones."""
        legal = bool(self.mask[action])
        (turn, x), y = divmod(action, self.width), 0
        box = BOXES[self.piece][turn]
        while self.fits(box, y, x):
            y += 1
        y = y - 1 if y > 0 else self.height - 1
        self.grid[y : y + 4, x : x + 4] |= box
        full = self.grid[:, : self.width].all(1)
        lines = int(full.sum())
        self.grid = np.concatenate((np.zeros((lines, self.width + 3), bool), self.grid[~full]))
        reward = (LINE_REWARDS[lines] if self.reward == "jumanji" else 1.0 + self.width * lines**2) * legal
        self.piece, self.upcoming = (self.upcoming if self.shows_next else drawn), drawn
        self.mask = self.legal()
        self.steps += 1
        self.lines += lines
        self.total += reward
        over, late = not legal or not self.mask.any(), self.steps >= self.time_limit
        return (reward, over, late and not over) if self.truncate else (reward, over or late, False)

    def planes(self) -> NDArray[np.uint8]:
        planes = np.zeros((4 + self.shows_next, self.height, self.width), bool)
        planes[0] = self.grid[: self.height, : self.width]
        planes[1] = np.logical_or.accumulate(planes[0], axis=0)
        planes[2, :4, :4] = BOXES[self.piece][0]
        planes[3, :4] = self.mask.reshape(4, self.width)
        if self.shows_next:
            planes[4, :4, :4] = BOXES[self.upcoming][0]
        return planes * np.uint8(255)
