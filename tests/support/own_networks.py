"""Networks as a user may write them: one that fits, and some that can't learn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from engine.agents.dueling import in_float32


class Net(nn.Module):
    """Two layers share their weights, and half of the values are dropped."""

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        width = stack * frame_shape[0]
        self.shared, self.last = nn.Linear(width, width), nn.Linear(width, actions)
        self.again, self.drop, self.calm = self.shared, nn.Dropout(0.5), nn.Dropout(0.5).eval()

    def forward(self, obs: Tensor) -> Any:
        return self.last(self.calm(self.drop(self.again(self.shared(obs.flatten(1))))))


class Squeezed(Net):
    """Loses the axis of the batch if it holds one observation."""

    def forward(self, obs: Tensor) -> Any:
        return super().forward(obs).squeeze(0)


class Two(Net):
    """Returns two rows, whatever the batch."""

    def forward(self, obs: Tensor) -> Any:
        return super().forward(obs)[:2]


class Normed(Net):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.normed = nn.BatchNorm1d(stack * frame_shape[0])

    def forward(self, obs: Tensor) -> Any:
        return self.last(self.normed(self.shared(obs.flatten(1))))


class DoubleBuffer(Net):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))


class Counting(Net):
    """Counts also when it acts."""

    seen: Tensor

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, obs: Tensor) -> Any:
        self.seen += len(obs)
        return super().forward(obs)


class Replacing(Counting):
    def forward(self, obs: Tensor) -> Any:
        self.seen = self.seen + self.training
        return Net.forward(self, obs)


def no_module(stack: int, frame_shape: tuple[int, ...], actions: int) -> Any:
    return lambda obs: obs.flatten(1)[:, :actions]


class Exit(Net):
    def forward(self, obs: Tensor) -> Any:
        raise SystemExit(4)


class InPlace(Net):
    def forward(self, obs: Tensor) -> Any:
        found = self.shared(obs.flatten(1)).sigmoid()
        return self.last(found.mul_(2))


class Unused(Net):
    def forward(self, obs: Tensor) -> Any:
        return self.last(obs.flatten(1))


class Frozen(Net):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.last.requires_grad_(False)


class Empty(nn.Module):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.actions = actions

    def forward(self, obs: Tensor) -> Tensor:
        return obs.flatten(1)[:, : self.actions]


class Double(Net):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.double()

    def forward(self, obs: Tensor) -> Any:
        return super().forward(obs.double()).float()


class Flat(nn.Module):
    """Sees pictures, and returns what its last layer does."""

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(stack * math.prod(frame_shape), 8), nn.Linear(8, actions)

    def forward(self, obs: Tensor) -> Any:
        return self.last(self.hidden(obs.flatten(1) / 255))


class FlatInFloat32(Flat):
    def forward(self, obs: Tensor) -> Any:
        return in_float32(self.last, self.hidden(obs.flatten(1) / 255))


class FlatOfZeros(FlatInFloat32):
    """Begins with Q-values of 0."""

    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)


class FlatDueling(Flat):
    def __init__(self, stack: int, frame_shape: tuple[int, ...], actions: int) -> None:
        super().__init__(stack, frame_shape, actions)
        self.value = nn.Linear(8, 1)

    def forward(self, obs: Tensor) -> Any:
        hidden = self.hidden(obs.flatten(1) / 255)
        advantage = self.last(hidden).float()
        return self.value(hidden).float() + advantage - advantage.mean(1, keepdim=True)


class FlatRounded(Flat):
    def forward(self, obs: Tensor) -> Any:
        return super().forward(obs).float()


class Pair(Net):
    def forward(self, obs: Tensor) -> Any:
        return super().forward(obs), None
