"""The base of networks that know what follows from an action, and learn only what that is worth.

Q(s, a) = r(s, a) + gamma * V(state after a): afterstates (Sutton & Barto 2018, section 6.8). A game whose rules are
known can bring such a network.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class Afterstates(nn.Module):
    """A network whose Q-values contain the rewards, so that it needs the discount factor."""

    gamma: Tensor  # float32 []

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gamma", torch.zeros(()))

    @abstractmethod
    def of_actions(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values [images, batch] of one action int64 [batch] per observation: of what follows, and of other states
        that are worth the same, such as its mirror image. Cheaper than the Q-values of all actions."""


def set_gamma(network: nn.Module, gamma: float) -> None:
    """Set the discount factor of a network for afterstates; for other networks it is the replay's alone."""
    if isinstance(network, Afterstates):
        network.gamma.fill_(gamma)
