"""Tetris for people: in real time, with pieces that fall, faster with every ten lines, and can be held; or played by a
policy, whose piece falls in each step to where it will be placed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from engine.config.capabilities import DOWN, LEFT, RIGHT, SELECT, START, UP, A, B
from engine.envs.lanes import Frames, Lanes
from engine.envs.played_game import PICTURES_PER_S
from engine.evaluation.stepped_game import PolicyPlayer
from engine.games.boards.lanes import BoardLanes
from engine.games.tetris.rules import PIECES, TetrisLanes
from engine.games.tetris.viewer import Drop, TetrisViewer, entry, landing, landings, moved, turned

HARD_DROP, HOLD = START, SELECT
CLOCKWISE, COUNTER_CLOCKWISE = (A, UP), (B,)
_LINES_PER_LEVEL, _HIGHEST_LEVEL = 10, 20
_POINTS = (0, 100, 300, 500, 800)
"""For 0 to 4 lines, times the level. With these and the speeds, https://tetris.wiki/Scoring and /Marathon."""
_LOCK_TICKS = PICTURES_PER_S // 2
"""Time that a piece can still be moved after it has landed; each move begins it anew."""
_MOST_MOVES = 15
"""Moves and turns of a piece since it first landed, as in https://tetris.wiki/Infinity."""


class TetrisPerson:
    """A person playing Tetris; see `engine.evaluation.stepped_game.Player`."""

    paced = False

    def __init__(self, lanes: Lanes, seed: int) -> None:
        assert isinstance(lanes, BoardLanes)
        games, viewer = lanes.board, lanes.viewer(0)
        assert isinstance(games, TetrisLanes) and isinstance(viewer, TetrisViewer)
        self._games, self._viewer = games, viewer
        self._random = np.random.default_rng(seed)
        self._lines, self._points = 0, 0
        self._held: int | None = None
        self._pending: list[int] = []

    @property
    def level(self) -> int:
        """From 1; more with every ten lines."""
        return min(self._lines // _LINES_PER_LEVEL + 1, _HIGHEST_LEVEL)

    @property
    def drop(self) -> Drop:
        """The falling piece."""
        return self._drop

    def observe(self, obs: Frames) -> None:
        lines = self._games.lines(0)
        self._points += _POINTS[lines - self._lines] * self.level
        self._lines = lines
        self._may_hold = True
        self._enter()

    def _enter(self) -> None:
        """Let the lane's piece enter the board."""
        self._columns = self._games.columns(0)
        drop = entry(self._columns, self._games.piece(0))
        assert drop is not None, "the episode has ended"
        self._place(drop)
        self._rows, self._landed, self._moves = 0.0, False, 0

    def _move(self, drop: Drop | None) -> None:
        """Move or turn the falling piece, if it can be there."""
        if drop is None or self._moves == _MOST_MOVES:
            return
        if self._moves or self._drop == self._ghost:
            self._moves += 1
        self._place(drop)

    def _place(self, drop: Drop) -> None:
        landed = landing(self._columns, drop)
        assert landed is not None
        self._drop, self._ghost, self._waited = drop, landed, 0

    def on_tick(self, presses: list[int]) -> None:
        self._pending += presses
        while self._pending and not self._landed:  # the others are for the next piece
            self._press(self._pending.pop(0))
        self._rows += 1 / (seconds_per_row(self.level) * PICTURES_PER_S)
        while self._rows >= 1:
            self._rows -= 1
            self._fall()
        if self._drop == self._ghost:
            self._waited += 1
            self._landed |= self._waited >= _LOCK_TICKS

    def _press(self, button: int) -> None:
        if button in (LEFT, RIGHT):
            self._move(moved(self._columns, self._drop, 1 if button == RIGHT else -1))
        elif button in CLOCKWISE:
            self._move(turned(self._columns, self._drop, 1))
        elif button in COUNTER_CLOCKWISE:
            self._move(turned(self._columns, self._drop, -1))
        elif button == DOWN:
            self._landed = self._drop == self._ghost
            self._points += self._fall()
            self._rows = 0.0
        elif button == HARD_DROP:
            self._points += 2 * (self._ghost.row - self._drop.row)
            self._drop, self._landed = self._ghost, True
        elif button == HOLD and self._may_hold:
            self._hold()

    def _fall(self) -> int:
        """Let the piece fall by a row. Returns the number of rows."""
        if self._drop == self._ghost:
            return 0
        self._place(self._drop._replace(row=self._drop.row + 1))
        return 1

    def _hold(self) -> None:
        """Exchange the piece for the one that is held, or at first for the next one, unless that has no room."""
        games, state = self._games, self._games.state()
        before, piece = games.piece(0), self._held
        if piece is None:
            piece = games.next_piece(0)
            assert piece is not None
            left = int(state["left"][0, 0])
            pieces = [each for each in range(len(PIECES)) if left >> each & 1] or range(len(PIECES))
            following = int(self._random.choice(pieces))
            state["next"][0] = following
            if games.bag:
                state["left"][0] = sum(1 << each for each in pieces) ^ 1 << following
        legal = torch.zeros(games.actions, dtype=torch.bool)
        legal[[action for action, _ in landings(self._columns, piece)]] = True
        if not legal.any():
            return
        state["piece"][0], state["masks"][0] = piece, legal
        games.load_state(state)
        self._held, self._may_hold = before, False
        self._enter()

    def action(self) -> int | None:
        return self._drop.rotation * self._games.width + self._drop.column if self._landed else None

    def picture(self, progress: float) -> NDArray[np.uint8]:
        return self._viewer.draw_piece(self._drop, [self._ghost], hold=True, held=self._held)

    def facts(self) -> dict[str, int]:
        return {"level": self.level, **self._viewer.facts(), "points": self._points}

    def thought(self) -> None: ...


def seconds_per_row(level: int) -> float:
    """Time in which a piece falls by a row."""
    return (0.8 - 0.007 * (level - 1)) ** (level - 1)


_FALL = 0.4, 0.9
"""The part of a step in which the piece falls."""


class FallingPolicy(PolicyPlayer):
    """See `engine.evaluation.stepped_game.Player`."""

    def picture(self, progress: float) -> NDArray[np.uint8]:
        assert isinstance(self._lanes, BoardLanes)
        begins, ends = _FALL
        return self._lanes.viewer(0).draw(self._thought, min(max(0.0, (progress - begins) / (ends - begins)), 1.0))
