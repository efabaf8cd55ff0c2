"""Board games for `mario-tui play`, in real time, played by a policy or a person; called by `play`.

A person's key presses arrive as joypad bytes. Snake waits for the first key and then moves on in the last direction. A
piece of Tetris is rotated and moved above the board and falls when it is dropped, because an environment step is a
whole placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents.double_dqn import greedy
from engine.agents.exploration import random_actions
from engine.commands.recorder import PICTURES_PER_S
from engine.config import joypad
from engine.envs.boards.tetris import ROTATIONS
from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.factory import boards_of, boards_of_policy
from engine.evaluation.policy import load_policy

_STEPS_PER_S = {"snake": 8.0, "tetris": 2.5}
_SNAKE_MOVES = {joypad.UP: 0, joypad.RIGHT: 1, joypad.DOWN: 2, joypad.LEFT: 3}


class _Player(Protocol):
    """Chooses the actions: a policy or a person."""

    paced: bool
    """Whether the game moves on at a fixed pace, instead of waiting for an action."""

    @property
    def shown(self) -> int:
        """The action as which a piece of Tetris is shown above the board."""

    def on_keys(self, presses: list[int], masks: NDArray[np.bool_] | None) -> None:
        """Process the buttons pressed since the last call; masks: legal actions [1, actions]."""

    def action(self, frames: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> int | None:
        """The action for frames uint8 [1, *frame_shape]; None if there is none yet."""


class BoardPolicy:
    """Plays with a policy's network: greedy, or with probability `epsilon` a random legal action."""

    paced, shown = True, 0

    def __init__(self, network: nn.Module, actions: int, epsilon: float, seed: int) -> None:
        self._network, self._actions = network, actions
        self._epsilon, self._random = epsilon, np.random.default_rng(seed)

    def on_keys(self, presses: list[int], masks: NDArray[np.bool_] | None) -> None: ...

    @torch.no_grad()
    def action(self, frames: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> int:
        if self._random.random() < self._epsilon:
            return int(random_actions(self._random, 1, self._actions, masks)[0])
        return int(greedy(self._network(torch.from_numpy(frames[:, None])), masks)[0])


class SnakePerson:
    """A person playing Snake: it moves in the direction that was pressed last."""

    paced, shown = True, 0

    def __init__(self) -> None:
        self._direction: int | None = None

    def on_keys(self, presses: list[int], masks: NDArray[np.bool_] | None) -> None:
        for button in presses:
            self._direction = _SNAKE_MOVES.get(button, self._direction)

    def action(self, frames: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> int | None:
        return self._direction


class TetrisPerson:
    """A person playing Tetris: rotates and moves the piece above the board until it is dropped."""

    paced = False

    def __init__(self, width: int) -> None:
        self._width = width
        self._rotation, self._column = 0, width // 2 - 1
        self._chosen: int | None = None

    @property
    def shown(self) -> int:
        return self._rotation * self._width + self._column

    def on_keys(self, presses: list[int], masks: NDArray[np.bool_] | None) -> None:
        assert masks is not None
        legal = masks[0].reshape(-1, self._width)
        for button in presses:
            if button in (joypad.LEFT, joypad.RIGHT):
                self._column += 1 if button == joypad.RIGHT else -1
            elif button in (joypad.UP, joypad.B):
                self._rotation = (self._rotation + 1) % ROTATIONS
            elif button in (joypad.DOWN, joypad.A) and legal[self._rotation, self._column]:
                self._chosen = self.shown
            self._clamp_column(legal)
        self._clamp_column(legal)

    def action(self, frames: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> int | None:
        chosen, self._chosen = self._chosen, None
        return chosen

    def _clamp_column(self, legal: NDArray[np.bool_]) -> None:
        """Move to the nearest column in which the piece can be placed, if there is one."""
        columns = np.flatnonzero(legal[self._rotation])
        if columns.size:
            self._column = int(columns[np.abs(columns - self._column).argmin()])


class BoardGame:
    """A board game; see `engine.commands.play.Game`. A tick is a picture.

    Args:
        metadata: metadata of a policy, or those that a policy for this game would have.
        policy: the policy's file; None if the person plays.
        presses: returns the buttons that the person has pressed since the last call, in order.
    """

    ticks_per_s, ticks_per_picture = float(PICTURES_PER_S), 1
    may_pause = True
    stage = ""

    def __init__(
        self, metadata: Mapping[str, Any], policy: Path | None, presses: Callable[[], list[int]], *, epsilon: float
    ) -> None:
        self._metadata, self._presses, self._epsilon = metadata, presses, epsilon
        self._network = None if policy is None else load_policy(policy)
        self._ticks_per_step = PICTURES_PER_S / _STEPS_PER_S[metadata["game"]]

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        boards = boards_of(self._metadata)
        board = boards[(episode - 1) % len(boards)]
        self._lanes = boards_of_policy({**self._metadata, "board": board}, 1, seed=seed)
        self._player = self._new_player(seed)
        self._frames = self._lanes.reset()
        self._clock, self._due = 0, 0.0
        self.steps, self._score, self.idle = 0, 0, False
        self._presses()  # those of the last episode
        self._picture = self._lanes.screen(0, self._player.shown)

    def _new_player(self, seed: int) -> _Player:
        if self._network is not None:
            return BoardPolicy(self._network, self._lanes.spec.actions, self._epsilon, seed)
        if self._metadata["game"] == "snake":
            return SnakePerson()
        return TetrisPerson(self._lanes.spec.frame_shape[-1])

    def tick(self) -> EpisodeRecord | None:
        self._clock += 1
        masks = self._lanes.masks
        self._player.on_keys(self._presses(), masks)
        if not self._player.paced or self._clock >= self._due:
            action = self._player.action(self._frames, masks)
            self.idle = action is None
            if action is not None:
                self._due = max(self._due, self._clock - 1) + self._ticks_per_step
                step = self._lanes.step(np.array([action]))
                self._frames, self._score = step.frames, int(step.scores[0])
                self.steps += 1
                for episode in ended_episodes(step):
                    return episode  # the lanes show the next board already; the picture stays
        self._picture = self._lanes.screen(0, self._player.shown)
        return None

    def picture(self) -> NDArray[np.uint8]:
        return self._picture

    def info(self) -> dict[str, int]:
        return {"score": self._score}
