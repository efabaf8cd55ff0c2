"""Board games for `mario-tui play`, in real time, played by a policy or a person; called by `play`.

A person's key presses arrive as joypad bytes. Snake waits for the first key and then moves on in the last direction.
For Tetris see `play_tetris`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents.double_dqn import greedy, mask_illegal
from engine.agents.exploration import random_actions
from engine.commands.play_tetris import TetrisPerson
from engine.commands.recorder import PICTURES_PER_S
from engine.config import joypad
from engine.config.game import game_of
from engine.config.reading import make_config
from engine.config.tasks import tasks_of
from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.factory import lanes_of_policy
from engine.evaluation.policy import load_policy
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.rules import SnakeLanes
from engine.protocol.messages import Thought

_STEPS_PER_S = {"snake": 8.0, "tetris": 2.5}
_SNAKE_MOVES = {joypad.UP: 0, joypad.RIGHT: 1, joypad.DOWN: 2, joypad.LEFT: 3}
_FALL = 0.4, 0.9
"""The part of a policy's step in which a piece of Tetris falls."""


class _Player(Protocol):
    """Chooses the actions in an episode of one game: a policy or a person."""

    paced: bool
    """Whether the game moves on at a fixed pace, instead of waiting for an action."""

    def observe(self, frames: NDArray[np.uint8]) -> None:
        """Begin a step with frames uint8 [1, *frame_shape]."""

    def on_tick(self, presses: list[int]) -> None:
        """Process the buttons pressed since the last tick."""

    def action(self) -> int | None:
        """The action of this step; None if there is none yet."""

    def picture(self, progress: float) -> NDArray[np.uint8]:
        """The screen, RGB uint8 [240, 256, 3]. progress: the part of a paced step's time that has passed."""

    def facts(self) -> dict[str, int]:
        """Values of the game to show beside the picture."""

    def thought(self) -> Thought | None:
        """The decision of a policy."""


class BoardPolicy:
    """Plays with a policy's network: greedy, or with probability `epsilon` a random legal action."""

    paced = True

    def __init__(self, network: nn.Module, lanes: BoardLanes, epsilon: float, seed: int) -> None:
        self._network, self._lanes = network, lanes
        self._epsilon, self._random = epsilon, np.random.default_rng(seed)

    @torch.no_grad()
    def observe(self, frames: NDArray[np.uint8]) -> None:
        masks = self._lanes.masks
        q_values = self._network(torch.from_numpy(frames[:, None]))
        at_random = self._random.random() < self._epsilon
        if at_random:
            action = random_actions(self._random, 1, self._lanes.spec.actions, masks)[0]
        else:
            action = greedy(q_values, masks)[0]
        self._thought = Thought(
            q_values=mask_illegal(q_values, masks)[0].tolist(),
            action=int(action),
            random=at_random,
            shape=(0, 0, 0, 0),
            seen=b"",
        )

    def on_tick(self, presses: list[int]) -> None: ...

    def action(self) -> int:
        return self._thought.action

    def picture(self, progress: float) -> NDArray[np.uint8]:
        begins, ends = _FALL
        return self._lanes.viewer(0).draw(self._thought, min(max(0.0, (progress - begins) / (ends - begins)), 1.0))

    def facts(self) -> dict[str, int]:
        return self._lanes.facts(0)

    def thought(self) -> Thought:
        return self._thought


class SnakePerson:
    """A person playing Snake: it moves in the direction that was pressed last, but never back into its neck."""

    paced = True

    def __init__(self, lanes: BoardLanes) -> None:
        self._lanes = lanes
        self._direction: int | None = None

    def observe(self, frames: NDArray[np.uint8]) -> None: ...

    def on_tick(self, presses: list[int]) -> None:
        for button in presses:
            wanted = _SNAKE_MOVES.get(button)
            if wanted is not None and wanted != self._back():
                self._direction = wanted

    def _back(self) -> int | None:
        """The direction in which the neck lies; None while there is none."""
        board = self._lanes.board
        assert isinstance(board, SnakeLanes)
        path, width = board.path(0), board.frame_shape[-1]
        return {-width: 0, 1: 1, width: 2, -1: 3}[path[-2] - path[-1]] if len(path) > 1 else None

    def action(self) -> int | None:
        return self._direction

    def picture(self, progress: float) -> NDArray[np.uint8]:
        return self._lanes.screen(0)

    def facts(self) -> dict[str, int]:
        return self._lanes.facts(0)

    def thought(self) -> None: ...


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
        self.outcome = game_of(metadata["game"]).outcome
        self._ticks_per_step = PICTURES_PER_S / _STEPS_PER_S[metadata["game"]]

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        boards = tasks_of(self._metadata)
        board = boards[(episode - 1) % len(boards)]
        metadata = {**self._metadata, "board": board}
        if self._network is None:
            metadata["next_piece"] = True  # of Tetris; a person wants to see it
        lanes = lanes_of_policy(metadata, 1, threads=1, seed=seed)
        assert isinstance(lanes, BoardLanes)
        self._lanes = lanes
        config = make_config({"game": self._metadata["game"], "board": board})
        self.actions = config.game_info.action_names(config)
        frames = self._lanes.reset()
        self._player = self._new_player(seed)
        self._player.observe(frames)
        self._clock, self._due = 0, 0.0 if self._network is None else self._ticks_per_step
        self.steps, self.idle = 0, False
        self._presses()  # those of the last episode
        self._show(0.0)

    def _new_player(self, seed: int) -> _Player:
        if self._network is not None:
            return BoardPolicy(self._network, self._lanes, self._epsilon, seed)
        if self._metadata["game"] == "snake":
            return SnakePerson(self._lanes)
        return TetrisPerson(self._lanes, seed)

    def tick(self) -> EpisodeRecord | None:
        self._clock += 1
        player = self._player
        player.on_tick(self._presses())
        if not player.paced or self._clock >= self._due:
            action = player.action()
            self.idle = action is None
            if action is not None:
                self._due = max(self._due, self._clock - 1) + self._ticks_per_step
                step = self._lanes.step(np.array([action]))
                self.steps += 1
                for episode in ended_episodes(step):
                    return episode  # the lanes show the next board already; the picture stays
                player.observe(step.frames)
        self._show(1 - (self._due - self._clock) / self._ticks_per_step)
        return None

    def _show(self, progress: float) -> None:
        player = self._player
        self._picture, self._facts, self._thought = player.picture(progress), player.facts(), player.thought()

    def picture(self) -> NDArray[np.uint8]:
        return self._picture

    def info(self) -> dict[str, int]:
        return self._facts

    def thought(self) -> Thought | None:
        return self._thought
