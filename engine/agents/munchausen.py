"""Munchausen returns (Vieillard et al. 2020, arXiv:2007.14430): an agent is rewarded for actions that its own policy,
softmax(Q_target / temperature), finds likely, and values states by that policy. With n-step returns,

    target = R + scale * clip(temperature * ln pi(a|s), -clip, 0)
               + discount * sum_b pi(b|s') (Q_target(s', b) - temperature * ln pi(b|s'))

So the reward is added for the first of n actions alone, as in the code of the paper. No action is chosen in s': Double
DQN has nothing to do here.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from engine.config.run_config import RunConfig


@dataclass(frozen=True)
class Munchausen:
    """The terms that Munchausen returns add. All actions must be legal."""

    scale: float
    temperature: float
    clip: float

    def reward(self, q: Tensor, actions: Tensor) -> Tensor:
        """What is added [batch] for the actions int64 [batch] that were taken, from Q-values [batch, actions]."""
        likely = F.log_softmax(q / self.temperature, 1).gather(1, actions[:, None]).squeeze(1)
        return self.scale * (self.temperature * likely).clamp(-self.clip, 0)

    def state_values(self, values: Tensor, q: Tensor) -> Tensor:
        """Values of states [batch, numbers] from those of actions [batch, actions, numbers] and their Q-values
        [batch, actions]."""
        log_policy = F.log_softmax(q / self.temperature, 1)[..., None]
        return (log_policy.exp() * (values - self.temperature * log_policy)).sum(1)


def munchausen_of(config: RunConfig) -> Munchausen | None:
    """That of a run; None without `--munchausen`."""
    if not config.munchausen:
        return None
    return Munchausen(config.munchausen, config.munchausen_temperature, config.munchausen_clip)
