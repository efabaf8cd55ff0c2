"""The networks of other packages in the benchmarks, and their greedy actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

HIDDEN = 256


class Nature(nn.Module):
    """The network of Mnih et al. 2015, as in Stable-Baselines3's CnnPolicy: for 84x84x4."""

    def __init__(self, actions: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512), nn.ReLU(inplace=True), nn.Linear(512, actions),
        )  # fmt: skip

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] for observations [batch, stack, height, width], 0 to 255."""
        q: Tensor = self.layers(obs.float() / 255)
        return q


class Features(nn.Module):
    """float32 [batch, width] from boards [batch, planes, height, width], 0 to 255."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        with torch.no_grad():
            self.width = self.layers(torch.zeros(1, *shape)).shape[1]

    def forward(self, boards: Tensor) -> Tensor:
        features: Tensor = self.layers(boards.float() / 255)
        return features


def q_network(env: gymnasium.Env[Any, Any]) -> nn.Sequential:
    shape, actions = env.observation_space.shape, env.action_space
    assert shape is not None and isinstance(actions, gymnasium.spaces.Discrete)
    features = Features(shape)
    return nn.Sequential(features, nn.Linear(features.width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, int(actions.n)))


def greedy(network: nn.Module, boards: NDArray[np.uint8], masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """The best of all actions, or of the legal ones."""
    with torch.no_grad():
        q: Tensor = network(torch.from_numpy(np.ascontiguousarray(boards)))
    if masks is not None:
        q = q.masked_fill(~torch.from_numpy(masks), -torch.inf)
    chosen: NDArray[np.int64] = q.argmax(1).numpy()
    return chosen
