"""Adam (Kingma and Ba 2015, arXiv:1412.6980) by PyTorch's fused kernel.

`torch.optim.Adam` is the same to the bit, but the first optimiser of a process imports PyTorch's compiler: 1.1 s and
73 MiB in every process that learns, and nothing here is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

EPSILON = 1e-5
SLOTS = ("step", "exp_avg", "exp_avg_sq")


class Adam:
    """Steps `parameters` by their `grad`. `state` has for each parameter the steps so far (float32 scalar) and the
    means of gradients and of their squares (its shape). `torch.amp.GradScaler` takes it for an optimiser."""

    _step_supports_amp_scaling = True
    grad_scale: Tensor | None = None  # the scaler sets both for a step
    found_inf: Tensor | None = None

    def __init__(self, parameters: Sequence[Tensor], *, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters)}]
        self.state = [
            {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }
            for parameter in parameters
        ]

    @torch.no_grad()
    def step(self) -> None:
        parameters = self.param_groups[0]["params"]
        steps, means, squares = ([held[name] for held in self.state] for name in SLOTS)
        adam(
            parameters, [parameter.grad for parameter in parameters], means, squares, [], steps,
            fused=True, grad_scale=self.grad_scale, found_inf=self.found_inf, amsgrad=False, beta1=0.9, beta2=0.999,
            lr=self.learning_rate, weight_decay=0.0, eps=EPSILON, maximize=False,
        )  # fmt: skip
