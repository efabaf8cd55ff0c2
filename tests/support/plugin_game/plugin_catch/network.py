"""A network of Catch's own."""

from __future__ import annotations

import math

from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs.flatten(1).float() / 255).float()


def make_mlp(stack: int, frame_shape: tuple[int, ...], actions: int) -> nn.Module:
    return Mlp(stack * math.prod(frame_shape), actions)
