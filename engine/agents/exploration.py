"""Choice of actions: epsilon for each lane, its schedule, random actions, and the best legal one.

Schedules count environment steps, never fractions of a run's length, so a longer run begins in the same way.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def epsilon_ladder(lanes: int, epsilon: float) -> NDArray[np.float64]:
    """Final epsilon of each lane [lanes], epsilon^(1 + 7 i / (N - 1)) (Horgan et al. 2018, section 4).

    0.4 gives 0.4 to 0.0007. A single lane gets epsilon itself.
    """
    ladder: NDArray[np.float64] = epsilon ** (1 + 7 * np.linspace(0, 1, lanes))
    return ladder


def member_ladders(lanes: int, epsilon: float, members: int) -> NDArray[np.float64]:
    """The ladder over all lanes of `members` processes [members, lanes]. They take its rungs in turns, so that each
    explores about as much as the others: figures of one hold for all."""
    return epsilon_ladder(members * lanes, epsilon).reshape(lanes, members).T


def annealed(ladder: NDArray[np.float64], env_steps: int, over: int, scale: float | None = None) -> NDArray[np.float64]:
    """Epsilon of each lane [lanes] after `env_steps`: falls linearly from 1 to `ladder` over `over` environment steps.

    `scale` multiplies the result, which is at most 1.
    """
    epsilons = 1 + (ladder - 1) * min(1.0, env_steps / over)
    return epsilons if scale is None else np.minimum(epsilons * scale, 1.0)


class Holds:
    """For how long random actions are held: for n steps, at most `longest`, with a probability in proportion to
    1 / n^power. With the power 0 all are equally likely; 2 is that of Dabney et al. 2020 (arXiv:2006.01782)."""

    def __init__(self, longest: int, power: int) -> None:
        self._longest, self._mean = longest, (longest + 1) / 2
        self._cumulative: NDArray[np.float64] | None = None
        if power and longest > 1:
            lengths = np.arange(1, longest + 1)
            shares = 1.0 / lengths**power
            shares /= shares.sum()
            self._cumulative, self._mean = shares.cumsum(), float(shares @ lengths)

    def drawn(self, random: np.random.Generator, lanes: int) -> NDArray[np.int64]:
        """The length of a hold in each lane [lanes], in steps."""
        if self._cumulative is None:
            return random.integers(1, self._longest + 1, lanes)
        return np.minimum(1 + np.searchsorted(self._cumulative, random.random(lanes)), self._longest)

    def starts(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability per step [lanes] with which a lane that follows the policy starts a hold."""
        return epsilons * min(1.0, 1 / (self._mean - 0.5))

    def random_share(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of steps [lanes] whose action is random.

        Between two holds, a lane follows the policy for (1 - p) / p steps, where p is that of `starts`. That the end of
        an episode cuts a hold is left out. Without holds it is epsilon; with holds of up to 8 steps, equally likely, it
        is 0.6 for epsilon 1 and 0.33 for 0.4.
        """
        starts = self.starts(epsilons)
        held = starts * self._mean
        return held / (held + 1 - starts)


def random_actions(
    random: np.random.Generator, lanes: int, actions: int, masks: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    """A random action for each lane [lanes], uniform over the legal ones; masks: bool [lanes, actions]."""
    if masks is None:
        return random.integers(0, actions, lanes)
    nth = (random.random(lanes) * masks.sum(1)).astype(np.int64)
    return (masks.cumsum(1) > nth[:, None]).argmax(1)


def greedy(q: Tensor, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Legal actions [lanes] with the largest of the Q-values [lanes, actions]; masks: legal ones [lanes, actions]."""
    return mask_illegal(q, masks).argmax(1).cpu().numpy()


def mask_illegal(q: Tensor, masks: NDArray[np.bool_] | None) -> Tensor:
    """Q-values [lanes, actions] with those of illegal actions replaced by -inf."""
    return q if masks is None else q.masked_fill(~torch.from_numpy(masks).to(q.device), -torch.inf)
