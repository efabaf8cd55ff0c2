"""An environment and a network of a user's own, as a file in the folder of a test. Importing it leaves a mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

Path(__file__).with_name("imported").touch()


class Corridor(gymnasium.Env[Any, Any]):
    """Five cells; at the right end is the reward."""

    observation_space = spaces.Box(0, 1, (5,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._cell = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._cell = max(0, self._cell + (1 if action else -1))
        return self._seen(), float(self._cell == 4), self._cell == 4, False, {}

    def _seen(self) -> Any:
        return np.eye(5, dtype=np.float32)[self._cell]


class Linear(nn.Module):
    """Q-values as sums of weights."""

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.layer = nn.Linear(stack * frame_shape[0], actions)

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.layer(obs.flatten(1))
        return values.float()


gymnasium.register("Corridor-v0", entry_point=f"{__name__}:Corridor", max_episode_steps=50)
