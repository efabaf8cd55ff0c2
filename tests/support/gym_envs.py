"""Gymnasium environments for tests: an image, a board with illegal actions, and one that fails as it is told."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from engine.envs.episode import LARGEST_RETURN

HERE = str(Path(__file__).resolve())
SQUARES, CORRIDOR, FAULTY = (f"gym:{HERE}:{name}-v0" for name in ("Squares", "Corridor", "Faulty"))
"""As `--game` takes them."""
SIZE = (60, 80)


class Squares(gymnasium.Env[NDArray[np.uint8], Any]):
    """A square that moves to the left or right of a coloured image; at the right end is the reward."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30, "action_names": ["left", "right"]}

    def __init__(self, render_mode: str | None = None, closes: bool = True, screen: bool = True) -> None:
        if render_mode and not screen:
            sys.exit("no display")
        self._closes = closes
        self.observation_space = spaces.Box(0, 255, (*SIZE, 3), np.uint8)
        self.action_space = spaces.Discrete(2, start=1)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._row = int(self.np_random.integers(0, 60)), int(self.np_random.integers(0, 50))
        return self.render(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action) and action.dtype == np.int64  # as the space samples them
        self._at = max(0, self._at + (8 if action == 2 else -8))
        ended = self._at >= 70
        return self.render(), float(ended), ended, False, {}

    def render(self) -> NDArray[np.uint8]:
        image = np.zeros((*SIZE, 3), np.uint8)
        image[:, :, 2] = 60
        image[self._row : self._row + 10, self._at : self._at + 10] = (255, 200, 0)
        return image

    def close(self) -> None:
        if not self._closes:
            threading.Event().wait()


class Corridor(gymnasium.Env[NDArray[np.uint8], Any]):
    """A board of zeros and ones, or what it holds as a vector. The first action moves right and is legal until the end;
    then the second is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": "fast"}  # it does not take the mode

    def __init__(self, flat: bool = False, broken: str = "", start: int = 0) -> None:
        self._broken = broken
        self._shape = (48,) if flat else (3, 8, 2)
        self.observation_space = spaces.Box(0, 1, self._shape, np.uint8)
        self.action_space = spaces.Discrete(2, start=start)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if self._broken == "reset":
            sys.exit("no screen")
        self._at = 0
        return self._seen()

    def close(self) -> None:
        if self._broken == "close":
            threading.Event().wait()

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if action != (self._at == 7):
            raise ValueError("an illegal action")
        self._at = min(7, self._at + 1)
        board, info = self._seen()
        if action and self._broken == "no mask":
            info = {}
        if action and self._broken == "zero mask":
            info["action_mask"][:] = 0
        return board, 1.0, bool(action), False, info

    def _seen(self) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        board = np.zeros((3, 8, 2), np.uint8)
        board[1, self._at, 0] = 1
        return board.reshape(self._shape), {"action_mask": np.array([self._at < 7, self._at == 7], np.int8)}


class Faulty(gymnasium.Env[Any, Any]):
    """Counts steps; after `good` of them in a process, `fault` happens `times` times. The fault `life` is the loss of
    one of two lives."""

    _steps = 0
    _left = -1

    def __init__(
        self, fault: str = "", good: int = 100, times: int = 1, scale: float = 1.0, render_mode: str | None = None
    ) -> None:
        self.observation_space = spaces.Box(-scale, scale, (3,), np.float32)
        self._scale = scale
        self.action_space = spaces.Discrete(2)
        self._fault, self._good = fault, good
        if Faulty._left < 0:
            Faulty._left = times

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._length = 0
        return self._observation(), {"lives": 2} if self._fault == "life" else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Faulty._steps += 1
        self._length += 1
        observation, reward = self._observation(), 1.0
        info: Any = {"lives": 2 - (Faulty._steps >= self._good)} if self._fault == "life" else {"lives": np.zeros(2)}
        if self._fault and Faulty._steps > self._good and Faulty._left > 0:
            Faulty._left -= 1
            observation, reward = self._fail(observation)
            info = None if self._fault == "info" else info
        ended = bool(self.np_random.random() < 0.1) and self._fault != "life"
        return observation, reward, ended, self._length >= 20, info

    def _fail(self, observation: Any) -> tuple[Any, float]:
        if self._fault == "raise":
            raise RuntimeError("the joint is broken")
        if self._fault == "value":
            raise ValueError("no such joint")
        if self._fault == "exit":
            sys.exit("window closed")
        if self._fault == "hang":
            threading.Event().wait()
        reward = {"reward": float("nan"), "sum": LARGEST_RETURN}.get(self._fault, 1.0)
        wrong = {
            "nan": np.full(3, np.nan, np.float32),
            "shape": np.zeros(5, np.float32),
            "huge": np.full(3, 3e38),
            "dtype": np.array(["a"] * 3),
        }
        return wrong.get(self._fault, observation), reward

    def _observation(self) -> Any:
        return self.np_random.uniform(-self._scale, self._scale, 3).astype(np.float32)


gymnasium.register("Squares-v0", entry_point=f"{__name__}:Squares", max_episode_steps=60)
gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor", max_episode_steps=20)
gymnasium.register("Faulty-v0", entry_point=f"{__name__}:Faulty")
