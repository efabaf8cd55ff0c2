"""What a network tells of the return of an action, and how it learns that: the mean, by the Huber loss, or quantiles,
by the quantile Huber loss. Both are used alike, so an agent does not know which it learns.

Values have a last axis of `numbers`: the mean alone, or N quantiles for the fractions f_i = (i + 1/2) / N, whose mean
is the Q-value (QR-DQN, Dabney et al. 2018, arXiv:1710.10044, eq. 10, with kappa = 1). For quantiles theta and targets
T,

    loss = sum_i mean_j |f_i - [T_j < theta_i]| * Huber(T_j - theta_i)

A loss returns its slopes along the values as well. To be given these, PyTorch would import SymPy, for a second.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.networks import Afterstates, QuantileQNetwork

Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From values [images, batch, numbers] and targets [batch, numbers], losses [images, batch] and slopes along values."""


def huber(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """See `Loss`; of means."""
    errors = values - targets
    losses = F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")
    return losses.sum(-1), errors.clamp(-1, 1)


def quantile_huber(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """See `Loss`; of quantiles. Takes memory for `numbers` squared floats per sample."""
    errors = values[..., None] - targets[:, None]  # of each quantile to each target
    count = values.shape[-1]
    fractions = (torch.arange(count, device=values.device) + 0.5) / count
    shares = (fractions[:, None] - (errors > 0).to(values.dtype)).abs()
    losses = F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")
    return (shares * losses).mean(-1).sum(-1), (shares * errors.clamp(-1, 1)).mean(-1)


def loss_of(network: nn.Module) -> Loss:
    """The loss by which a network learns its values."""
    return quantile_huber if isinstance(network, QuantileQNetwork) else huber


def values_of(network: nn.Module, obs: Tensor) -> Tensor:
    """Values [batch, actions, numbers] of observations."""
    values: Tensor = network.quantiles(obs) if isinstance(network, QuantileQNetwork) else network(obs)[..., None]
    return values


def values_of_actions(network: nn.Module, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Values [images, batch, numbers] of one action int64 [batch] per observation, and the action gaps [batch]: how
    much less their Q-values are than those of the best action, legal or not.

    `Afterstates` may give several images, and give a single 0 for the gaps; other networks give one image.
    """
    if isinstance(network, Afterstates):
        return network.of_actions(obs, actions)[..., None], obs.new_zeros(())
    every = values_of(network, obs)
    values = of_actions(every, actions)
    return values[None], every.detach().mean(2).max(1).values - values.detach().mean(1)


def of_actions(values: Tensor, actions: Tensor) -> Tensor:
    """Values [batch, numbers] of one action int64 [batch] each, among those [batch, actions, numbers] of all."""
    return values.gather(1, actions[:, None, None].expand(-1, 1, values.shape[2])).squeeze(1)
