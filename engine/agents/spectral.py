"""Convolutions whose weights are divided by their largest singular value (spectral normalisation, Miyato et al. 2018,
arXiv:1802.05957), so that no layer stretches what passes through it. In Q-networks it lets Adam take larger steps
(Gogianu et al. 2021, arXiv:2105.05246).

The value is u^T W v, where u and v come from power iteration: v = W^T u / |W^T u|, u = W v / |W v|. Weights move little
in an update, so one iteration after each suffices. Whoever learns calls `advance`; passes change nothing, so that any
number of threads may take them. u and v are buffers: they go wherever the weights go.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_FIRST = 20
"""Iterations for new weights."""


class SpectralConv2d(nn.Conv2d):
    """A convolution whose weights, as a matrix [outputs, inputs * kernel], have the largest singular value 1."""

    u: Tensor  # float32 [outputs]
    v: Tensor  # float32 [inputs * kernel]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        matrix = self.weight.detach().flatten(1)
        self.register_buffer("u", F.normalize(matrix.sum(1), dim=0))
        self.register_buffer("v", torch.zeros(matrix.shape[1]))
        for _ in range(_FIRST):
            self.advance()

    @torch.no_grad()
    def advance(self) -> None:
        """Do one power iteration, in place."""
        matrix = self.weight.flatten(1)
        self.v.copy_(F.normalize(matrix.T @ self.u, dim=0))
        self.u.copy_(F.normalize(matrix @ self.v, dim=0))

    def forward(self, x: Tensor) -> Tensor:
        largest = (self.u[:, None] * self.weight.flatten(1) * self.v).sum()  # float32 in mixed precision, too
        return self._conv_forward(x, self.weight / largest, self.bias)


def spectral_layers(network: nn.Module) -> list[SpectralConv2d]:
    return [module for module in network.modules() if isinstance(module, SpectralConv2d)]
