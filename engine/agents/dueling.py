"""The streams of dueling Q-networks and their sum (Wang et al. 2016, arXiv:1511.06581, eq. 9).

Under mixed precision the last layers are computed in float32: above 8, bfloat16 has steps of 0.06, and Q-values of
states and actions often differ by less.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def stream(width: int, hidden: int, outputs: int, *, norm: bool) -> nn.Sequential:
    """With `norm`, LayerNorm allows twice the learning rate (for why, see Gallici et al. 2024, arXiv:2407.04811)."""
    between = [nn.LayerNorm(hidden)] if norm else []
    return nn.Sequential(nn.Linear(width, hidden), *between, nn.ReLU(inplace=True), nn.Linear(hidden, outputs))


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
    """Q-values [batch, actions] from values [batch, 1] and advantages [batch, actions]."""
    return value + advantage - advantage.mean(1, keepdim=True)
