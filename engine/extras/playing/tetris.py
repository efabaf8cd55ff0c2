"""Tetris for people: in real time, with pieces that fall, faster with every ten lines, and can be held; or played by a
policy, whose piece falls in each step to where it will be placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.config.capabilities import DOWN, LEFT, RIGHT, SELECT, START, UP, A, B
from engine.config.game import Game
from engine.envs.lanes import Frames, Lanes
from engine.envs.played_game import PICTURES_PER_S, PersonControls
from engine.extras.playing.stepped_game import (
    PersonPlayer,
    PolicyPlayer,
    SteppedGame,
    game_of_person,
    game_of_policy,
)
from engine.games.boards.lanes import BoardLanes
from engine.games.tetris.rules import PIECES, ROTATIONS, TetrisLanes
from engine.games.tetris.viewer import UPRIGHT, Drop, TetrisViewer, entry, landing, landings
from engine.protocol.outcome import Conditions

HARD_DROP, HOLD = START, SELECT
CLOCKWISE, COUNTER_CLOCKWISE = (A, UP), (B,)
_LINES_PER_LEVEL, _HIGHEST_LEVEL = 10, 20
_POINTS = (0, 100, 300, 500, 800)
"""For 0 to 4 lines, times the level. With these and the speeds, https://tetris.wiki/Scoring and /Marathon."""
_LOCK_TICKS = PICTURES_PER_S // 2
"""Time that a piece can still be moved after it has landed; each move begins it anew."""
_MOST_MOVES = 15
"""Moves and turns of a piece since it first landed, as in https://tetris.wiki/Infinity."""

_CENTRED = (((0, 1), (2, 0), (0, 2), (1, 0)), ((0, 0), (1, 0), (0, 1), (0, 0)))
"""Where I, and the other pieces but O, lie in a box that turns around its centre, by quarter turns from `UPRIGHT`."""
_LIFT = 2
"""Most rows by which a turn lifts a piece."""


class TetrisPerson(PersonPlayer):
    """A person playing Tetris."""

    paced = False

    def __init__(self, lanes: Lanes, seed: int) -> None:
        super().__init__(lanes, seed)
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
        drop.piece, (drop.rotation + by) % ROTATIONS, drop.column + new[0] - old[0], max(0, drop.row + new[1] - old[1])
    )
    for aside in (0, -1, 1, -2, 2):
        there = wanted._replace(column=wanted.column + aside)
        landed = landing(columns, there) if there.column >= 0 else None
        if landed is not None and landed.row >= there.row - _LIFT:
            return there._replace(row=min(there.row, landed.row))
    return None


def _offset(piece: int, rotation: int) -> tuple[int, int]:
    """Return where a piece lies in the box that turns: (column, row)."""
    if PIECES[piece][0] == PIECES[piece][1]:
        return 0, 0
    return _CENTRED[piece > 0][(rotation - UPRIGHT[piece]) % ROTATIONS]


def seconds_per_row(level: int) -> float:
    """Time in which a piece falls by a row."""
    return (0.8 - 0.007 * (level - 1)) ** (level - 1)


_FALL = 0.4, 0.9
"""The part of a step in which the piece falls."""


class FallingPolicy(PolicyPlayer):
    """See `engine.extras.playing.stepped_game.Player`."""

    def picture(self, progress: float) -> NDArray[np.uint8]:
        assert isinstance(self._lanes, BoardLanes)
        begins, ends = _FALL
        return self._lanes.viewer(0).draw(self._thought, min(max(0.0, (progress - begins) / (ends - begins)), 1.0))


def of_policy(policy: Path, metadata: Mapping[str, Any], conditions: Conditions) -> SteppedGame:
    """The game of a policy, from its file and its metadata."""
    return game_of_policy(policy, metadata, conditions.epsilon, player=FallingPolicy)


def of_person(game: Game, controls: PersonControls, **options: Any) -> SteppedGame:
    """The game of a person, with these options of the game."""
    return game_of_person(game, TetrisPerson, controls, **{"next_piece": True, **options})
