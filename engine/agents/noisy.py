"""Noisy layers (NoisyNet, Fortunato et al. 2018, arXiv:1706.10295), which explore by noise in their weights:

    y = (W + S * f(e_out) f(e_in)^T) x + b + s * f(e_out),   f(e) = sign(e) sqrt(|e|),   e ~ N(0, 1)

W, b, S and s are learned. The noise is neither: a layer has none until some is drawn for it, and the networks that are
evaluated and saved never get any. An agent acts, values and learns with views of its networks, which share weights but
have noise of their own (section 3.1 of the paper).
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEVIATION = 0.5
"""Initial S and s, times the root of the number of inputs (section 3.2)."""


class NoisyLinear(nn.Linear):
    """A linear layer with factorised noise, once some is drawn."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)  # initialises W and b as the paper does: uniformly up to 1 / sqrt(inputs)
        deviation = DEVIATION / math.sqrt(inputs)
        self.weight_deviation = nn.Parameter(torch.full((outputs, inputs), deviation))
        self.bias_deviation = nn.Parameter(torch.full((outputs,), deviation))
        self._noise: tuple[Tensor, Tensor] | None = None

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw new noise."""
        numbers = torch.randn(self.in_features + self.out_features, generator=generator, device=self.weight.device)
        shaped = numbers.sign() * numbers.abs().sqrt()
        self._noise = shaped[: self.in_features], shaped[self.in_features :]

    def forward(self, x: Tensor) -> Tensor:
        if self._noise is None:
            return super().forward(x)
        inputs, outputs = self._noise
        weight = torch.addcmul(self.weight, self.weight_deviation, torch.outer(outputs, inputs))
        return F.linear(x, weight, torch.addcmul(self.bias, self.bias_deviation, outputs))


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]


def draw_noise(network: nn.Module, generator: torch.Generator | None = None) -> None:
    """Draw new noise for all noisy layers of a network, by PyTorch's own generator of its device by default."""
    for layer in noisy_layers(network):
        layer.draw(generator)


def view_of(network: nn.Module) -> nn.Module:
    """A copy with the same tensors, but with noise of its own; without noisy layers the network itself."""
    if not noisy_layers(network):
        return network
    tensors = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, tensors)
