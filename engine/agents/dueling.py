"""The streams of dueling Q-networks and their sum (Wang et al. 2016, arXiv:1511.06581, eq. 9).

Under mixed precision the last layers are computed in float32: above 8, bfloat16 has steps of 0.06, and Q-values of
states and actions often differ by less.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.agents.noisy import NoisyLinear


@dataclass(frozen=True)
class Head:
    """What the streams of a network tell of each action."""

    quantiles: int | None = None
    """Of its return; None: only the mean."""
    noisy: bool = False
    """Whether the layers of the streams are noisy."""


PLAIN = Head()


def stream(width: int, hidden: int, outputs: int, *, norm: bool, head: Head = PLAIN) -> nn.Sequential:
    """With `norm`, LayerNorm allows twice the learning rate (for why, see Gallici et al. 2024, arXiv:2407.04811)."""
    between = [nn.LayerNorm(hidden)] if norm else []
    linear = NoisyLinear if head.noisy else nn.Linear
    first, last = linear(width, hidden), linear(hidden, outputs * (head.quantiles or 1))
    return nn.Sequential(first, *between, nn.ReLU(inplace=True), last)


def through(stream: nn.Sequential, features: Tensor) -> Tensor:
    """A stream's outputs float32 [batch, outputs] for features [batch, width]."""
    *hidden, last = stream  # a slice would be a new module in each pass
    for layer in hidden:
        features = layer(features)
    return in_float32(last, features)


def in_float32(layer: nn.Module, hidden: Tensor) -> Tensor:
    """Apply the last layer of a stream in float32."""
    with torch.autocast(hidden.device.type, enabled=False):
        out: Tensor = layer(hidden.float())
    return out


def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    """Q-values [batch, actions] from values [batch, 1] and advantages [batch, actions]; with several numbers for each
    action, values [batch, actions, numbers] from [batch, numbers] and [batch, actions * numbers]."""
    if value.shape[1] > 1:
        numbers = value.shape[1]
        value, advantage = value[:, None], advantage.view(-1, advantage.shape[1] // numbers, numbers)
    return value + advantage - advantage.mean(1, keepdim=True)
