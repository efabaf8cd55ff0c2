"""Q-networks over stacked uint8 pictures."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DuelingQNetwork(nn.Module):
    """The convolutions of Mnih et al. 2015 with the dueling head of Wang et al. 2016 (arXiv:1511.06581, eq. 9).

    Args:
        stack: pictures in an observation, the input's channels.
        frame_shape: (height, width) of a picture.
        actions: number of actions.
        hidden: width of each of the two streams.
    """

    def __init__(self, stack: int, frame_shape: tuple[int, int], actions: int, hidden: int = 256) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(stack, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            width = self.features(torch.zeros(1, stack, *frame_shape)).shape[1]
        self.value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.advantage = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, actions))

    def forward(self, obs: Tensor) -> Tensor:
        """uint8 [batch, stack, height, width] -> Q-values float32 [batch, actions]."""
        features = self.features(obs.float() / 255)
        advantage: Tensor = self.advantage(features)
        q: Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return q.float()
