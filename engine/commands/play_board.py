"""Board games for `mario-tui play`, in real time, played by a policy or a person; called by `engine.commands.play`.

A person's key presses arrive as joypad bytes. Snake waits for the first key and then moves on in the last direction. A
piece of Tetris is rotated and moved above the board and falls when it is dropped, because an environment step is a
whole placement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents.double_dqn import greedy
from engine.agents.exploration import random_actions
from engine.commands.recorder import PICTURES_PER_S, Video
from engine.config import joypad
from engine.envs.boards.tetris import ROTATIONS
from engine.envs.emulators.protocol import SCREEN_SHAPE
from engine.envs.episode import ended_episodes
from engine.envs.factory import boards_of_policy
from engine.evaluation.policy import load_policy
from engine.protocol.messages import EvaluationReport, Frame

_STEPS_PER_S = {"snake": 8.0, "tetris": 2.5}
_SNAKE_MOVES = {joypad.UP: 0, joypad.RIGHT: 1, joypad.DOWN: 2, joypad.LEFT: 3}


class Keys(Protocol):
    """Key presses of the person."""

    gone: bool
    """Whether there is no person any more, because standard input has closed."""

    def presses(self) -> list[int]:
        """Buttons pressed since the last call, in order."""


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
    """Plays with a policy file: greedy, or with probability `epsilon` a random legal action."""

    paced, shown = True, 0

    def __init__(self, path: Path, actions: int, epsilon: float, seed: int) -> None:
        self._network, self._actions = load_policy(path), actions
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


def play_board(
    metadata: Mapping[str, Any],
    policy: Path | None,
    keys: Keys,
    send: Callable[[EvaluationReport], None],
    *,
    epsilon: float,
    seed: int,
    episodes: int | None,
    video: Video | None,
) -> None:
    """Play until standard input closes or `episodes` episodes are over.

    Args:
        metadata: metadata of a policy, or those that a policy for this game would have.
        policy: the policy's file; None if the person plays.
    """
    game = metadata["game"]
    env = boards_of_policy(metadata, 1, seed=seed)
    player: _Player
    if policy is not None:
        player = BoardPolicy(policy, env.spec.actions, epsilon, seed)
    else:
        player = SnakePerson() if game == "snake" else TetrisPerson(env.spec.frame_shape[-1])
    frames = env.reset()
    height, width, _ = SCREEN_SHAPE
    finished = env_steps = score = index = 0
    started = due = time.monotonic()
    while not keys.gone and finished != episodes:
        player.on_keys(keys.presses(), env.masks)
        action = None
        if not player.paced or time.monotonic() >= due:
            due = time.monotonic() + 1 / _STEPS_PER_S[game]
            action = player.action(frames, env.masks)
        if action is not None:
            step = env.step(np.array([action]))
            frames, env_steps, score = step.frames, env_steps + 1, int(step.scores[0])
            if step.terminated[0] or step.truncated[0]:
                finished += 1
                (episode,) = ended_episodes(step)
                send(episode.message(env_steps=env_steps, episode=finished, epsilon=epsilon))
                score = 0
        picture = env.screen(0, player.shown)
        send(Frame(index=index, height=height, width=width, rgb=picture.tobytes(), info={"score": score}))
        if video is not None:
            video.add(picture)
        index += 1
        time.sleep(max(0.0, started + index / PICTURES_PER_S - time.monotonic()))
