"""Q-networks over stacked uint8 pictures and boards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _nature(channels: int) -> nn.Sequential:
    """For screens of 36x36 and more (Mnih et al. 2015)."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3), nn.ReLU(inplace=True),
    )  # fmt: skip


def _grid(channels: int) -> nn.Sequential:
    """For boards of cells."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(inplace=True),
    )  # fmt: skip


TORSOS: dict[str, Callable[[int], nn.Sequential]] = {"nature": _nature, "grid": _grid}


class DuelingQNetwork(nn.Module):
    """A convolutional torso with the dueling head of Wang et al. 2016 (arXiv:1511.06581, eq. 9).

    Args:
        stack: frames in an observation.
        frame_shape: (height, width) of a frame, or (planes, height, width).
        actions: number of actions.
        torso: one of `TORSOS`.
        hidden: width of each of the two streams.
    """

    def __init__(
        self, stack: int, frame_shape: tuple[int, ...], actions: int, torso: str = "nature", hidden: int = 256
    ) -> None:
        super().__init__()
        channels = stack * (frame_shape[0] if len(frame_shape) == 3 else 1)
        self.features = TORSOS[torso](channels)
        with torch.no_grad():
            width = self.features(torch.zeros(1, channels, *frame_shape[-2:])).numel()
        self.value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 1))
        self.advantage = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, actions))

    def forward(self, obs: Tensor) -> Tensor:
        """Q-values float32 [batch, actions] of observations [batch, stack, (planes,) height, width], 0 to 255.

        They are uint8, or of a float type that the caller chose.
        """
        first = self.features[0]
        assert isinstance(first, nn.Conv2d)
        x = (obs if obs.is_floating_point() else obs.float()).flatten(1, -3)
        # The scale is in the weights: a uint8 is exact in every float type, and a pass over the pictures is saved.
        x = F.conv2d(x, first.weight / 255, first.bias, first.stride, first.padding)
        features = self.features[1:](x).flatten(1)
        advantage: Tensor = self.advantage(features)
        q: Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return q.float()
