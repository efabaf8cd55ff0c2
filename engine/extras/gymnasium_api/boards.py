"""Snake and Tetris for Gymnasium: single environments and vector environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from engine.extras.gymnasium_api.common import RENDER_MODES, Flags, Observation, check_actions, checked
from engine.games.boards.tensor_lanes import TensorStep
from engine.games.boards.viewers import Viewer, Viewers
from engine.games.snake.rules import SnakeLanes
from engine.games.snake.viewer import SnakeViewer
from engine.games.tetris.rules import TetrisLanes
from engine.games.tetris.viewer import TetrisViewer

Lanes = SnakeLanes | TetrisLanes


class _GameVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """Many games stepped together.

    Observations are uint8 [num_envs, planes, height, width]. `infos` has `action_mask`, bool [num_envs, actions], and
    `score`. When an episode ends, observation, mask and score are the first of the next episode, and `infos` has the
    last ones of the ended episode as `final_obs` (an object array) and `final_info`.

    One seed is used for all games together, because they share a random number generator.

    Args:
        num_envs: number of games, at least 1.
        render_mode: None or `rgb_array`: `render` returns a tuple of pictures of all games, uint8 [240, 256, 3].
        options: keyword arguments of the lanes. Games are played on `device`; returned arrays are on the host.
    """

    metadata: dict[str, Any] = {
        "render_modes": list(RENDER_MODES),
        "render_fps": 10,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }
    lanes_type: ClassVar[Callable[..., Lanes]]
    viewer_type: ClassVar[Callable[..., Viewer]]

    def __init__(self, num_envs: int = 1, *, render_mode: str | None = None, **options: Any) -> None:
        self.closed = True  # nothing to release yet, if the following fails
        self.render_mode = checked("render_mode", render_mode, (None, *RENDER_MODES))
        self._lanes = type(self).lanes_type(num_envs, **options)
        self._viewers = Viewers(partial(type(self).viewer_type, self._lanes))
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, self._lanes.frame_shape, np.uint8)
        self.single_action_space = spaces.Discrete(self._lanes.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False
        self.closed = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every game; returns the first observations and infos.

        Raises `ValueError` for several seeds, and for `options["reset_mask"]`, because games reset automatically.
        """
        if options is not None and "reset_mask" in options:
            raise ValueError("reset_mask is not supported: this environment resets games automatically")
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ValueError("seed must be None or a single integer for all games, got several seeds")
        super().reset(seed=None if seed is None else int(seed))
        if seed is not None or not self._seeded:
            self._lanes.reseed(int(self.np_random.integers(2**63)))
            self._seeded = True
        frames = self._lanes.reset()
        self._viewers.clear()
        return frames.cpu().numpy(), self._infos(self._lanes.masks)

    def step(self, actions: NDArray[np.int64]) -> tuple[Observation, NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """One step of all games with actions int64 [num_envs].

        Returns observations, rewards, terminations, truncations and infos. Raises `ResetNeeded` before the first reset,
        `ValueError` for invalid actions.
        """
        if not self._seeded:
            raise ResetNeeded("step() was called before the first reset()")
        step = _step(self._lanes, self._viewers, np.asarray(actions, np.int64))
        terminated, truncated = step.terminated.cpu().numpy(), step.truncated.cpu().numpy()
        ended = terminated | truncated
        infos = self._infos(step.masks)
        if ended.any():
            frames, masks = step.final_frames.cpu().numpy(), step.final_masks.cpu().numpy()
            scores = step.score.cpu()
            for game in np.flatnonzero(ended).tolist():
                final = {"action_mask": masks[game], "score": int(scores[game])}
                infos = self._add_info(infos, {"final_obs": frames[game], "final_info": final}, game)
        rewards = step.rewards.cpu().numpy().astype(np.float64)
        return step.frames.cpu().numpy(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Observation, ...] | None:
        """A picture of every game; None without a render mode."""
        return None if self.render_mode is None else tuple(self._viewers[game].draw() for game in range(self.num_envs))

    def _infos(self, masks: torch.Tensor) -> dict[str, Any]:
        known = np.ones(self.num_envs, np.bool_)
        infos = {"action_mask": masks.cpu().numpy(), "score": self._lanes.scores.cpu().numpy()}
        return infos | {f"_{name}": known.copy() for name in infos}


class SnakeVectorEnv(_GameVectorEnv):
    __doc__ = f"Snake; for the rules see `SnakeLanes`. {_GameVectorEnv.__doc__}"
    lanes_type, viewer_type = SnakeLanes, SnakeViewer


class TetrisVectorEnv(_GameVectorEnv):
    __doc__ = f"Tetris; for the rules see `TetrisLanes`. {_GameVectorEnv.__doc__}"
    lanes_type, viewer_type = TetrisLanes, TetrisViewer


class _GameEnv(gymnasium.Env[Observation, np.int64]):
    """One game. `info` has `action_mask`, bool [actions], and `score`.

    Args:
        render_mode: None or `rgb_array`: `render` returns a picture, uint8 [240, 256, 3].
        options: keyword arguments of the lanes.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}
    lanes_type: ClassVar[Callable[..., Lanes]]
    viewer_type: ClassVar[Callable[..., Viewer]]

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.render_mode = checked("render_mode", render_mode, (None, *RENDER_MODES))
        self._lanes = type(self).lanes_type(1, **options)
        self._viewers = Viewers(partial(type(self).viewer_type, self._lanes))
        self.observation_space = spaces.Box(0, 255, self._lanes.frame_shape, np.uint8)
        self.action_space = spaces.Discrete(self._lanes.actions)
        self._seeded = False
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; returns its first observation and info."""
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._lanes.reseed(int(self.np_random.integers(2**63)))
            self._seeded = True
        self._playing = True
        frame = self._lanes.reset()[0].cpu().numpy()
        self._viewers.clear()
        return frame, {"action_mask": self._lanes.masks[0].cpu().numpy(), "score": 0}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step. Raises `ResetNeeded` if no episode is in progress, `ValueError` for an invalid action."""
        if not self._playing:
            raise ResetNeeded("step() was called before reset(), or after the episode's end")
        step = _step(self._lanes, self._viewers, np.array([action], np.int64))
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._playing = not (terminated or truncated)
        info = {"action_mask": step.final_masks[0].cpu().numpy(), "score": int(step.score)}
        return step.final_frames[0].cpu().numpy(), float(step.rewards), terminated, truncated, info

    def render(self) -> Observation | None:
        """A picture of the game, or of the next one if the episode has ended; None without a render mode."""
        return None if self.render_mode is None else self._viewers[0].draw()


class SnakeEnv(_GameEnv):
    __doc__ = f"Snake; for the rules see `SnakeLanes`. {_GameEnv.__doc__}"
    lanes_type, viewer_type = SnakeLanes, SnakeViewer


class TetrisEnv(_GameEnv):
    __doc__ = f"Tetris; for the rules see `TetrisLanes`. {_GameEnv.__doc__}"
    lanes_type, viewer_type = TetrisLanes, TetrisViewer


def _step(lanes: Lanes, viewers: Viewers, actions: NDArray[np.int64]) -> TensorStep:
    """One step of all lanes, which the viewers follow. Raises `ValueError` for invalid actions."""
    check_actions(actions, lanes.lanes, lanes.actions)
    viewers.before_step(actions)
    step = lanes.step(torch.from_numpy(actions).to(lanes.device))
    viewers.after_step((step.terminated | step.truncated).cpu().numpy())
    return step
