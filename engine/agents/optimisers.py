"""Optimisers: Adam (Kingma and Ba 2015, arXiv:1412.6980), with PyTorch's fused kernel, and the centred RMSProp of Mnih
et al. 2015, with the numbers of Young and Tian 2019 (arXiv:1903.03176).

Adam's results are bit-identical to `torch.optim.Adam`. That class imports PyTorch's compiler when the first optimiser
of a process is created, which costs every learning process 1.1 s and 73 MiB, and nothing here is compiled.

As in PyTorch, the small number that keeps RMSProp's quotients bounded is added to the root; in Mnih et al. it is under
the root.
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
    """Updates `parameters` by their `grad`; works with `torch.amp.GradScaler`.

    `state` has a dict for each parameter: number of steps (float32 scalar), and running means of the gradient and of
    its square (in the parameter's shape).
    """

    _step_supports_amp_scaling = True
    grad_scale: Tensor | None = None  # set by the scaler for a step, as is found_inf
    found_inf: Tensor | None = None

    def __init__(self, parameters: Sequence[Tensor], *, learning_rate: float) -> None:
        device = parameters[0].device
        # A tensor, so that a CUDA graph reads the current value. Its dtype is what the device's kernel computes with.
        self._rate = torch.zeros((), dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
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

    @property
    def learning_rate(self) -> float:
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._learning_rate = value
        self._rate.fill_(value)

    @torch.no_grad()
    def step(self) -> None:
        parameters = self.param_groups[0]["params"]
        steps, means, squares = ([held[name] for held in self.state] for name in SLOTS)
        adam(
            parameters, [parameter.grad for parameter in parameters], means, squares, [], steps,
            fused=True, grad_scale=self.grad_scale, found_inf=self.found_inf, amsgrad=False, beta1=0.9, beta2=0.999,
            lr=self._rate, weight_decay=0.0, eps=EPSILON, maximize=False,
        )  # fmt: skip


RMSPROP_DECAY, RMSPROP_EPSILON = 0.95, 0.01


class RMSProp(Adam):
    """Has the tensors of Adam: running means of the gradient and of its square."""

    _step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self) -> None:
        parameters = self.param_groups[0]["params"]
        gradients = [parameter.grad for parameter in parameters]
        steps, means, squares = ([held[name] for held in self.state] for name in SLOTS)
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - RMSPROP_DECAY)
        torch._foreach_lerp_(squares, torch._foreach_mul(gradients, gradients), 1 - RMSPROP_DECAY)
        deviations = torch._foreach_addcmul(squares, means, means, value=-1)
        torch._foreach_clamp_min_(deviations, 0)  # rounding may leave less
        torch._foreach_sqrt_(deviations)
        torch._foreach_add_(deviations, RMSPROP_EPSILON)
        torch._foreach_addcdiv_(parameters, torch._foreach_mul(gradients, self._rate), deviations, value=-1)
