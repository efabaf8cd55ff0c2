"""Initial priorities of transitions, computed by the actors that play them (Ape-X, Horgan et al. 2018, section 3).

The Q-values that an actor computes for acting also give the n-step TD errors of its earlier steps. So transitions enter
the replay with their own priorities, without another forward pass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.buffers.frames import InitialPriorities


class TDErrors:
    """n-step TD errors of `lanes` lanes, from the Q-values used for acting; as in `DoubleDQN`, targets lose the share
    `advantage_learning` of the action gap. It stays the same when the learner's share changes: these priorities hold
    only until a transition is first sampled."""

    def __init__(self, lanes: int, n_step: int, gamma: float, advantage_learning: float) -> None:
        self._n_step, self.gamma, self._advantage_learning = n_step, gamma, advantage_learning
        self._taken = np.zeros((n_step + 1, lanes))
        """Q-value of the action taken plus the share of its gap, by age; row 0 is the newest."""
        self._rewards = np.zeros((n_step + 1, lanes))
        self._length = np.zeros(lanes, np.int64)  # steps of the episode so far, this one included

    def step(
        self,
        q_values: NDArray[np.float32],
        actions: NDArray[np.int64],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> InitialPriorities:
        """Add one step of all lanes and return the priorities of the entries whose windows it completes.

        `q_values` [lanes, actions] are those of the observation acted on, -inf for illegal actions; all other arrays
        are [lanes]. After a truncation, the value of the last observation acted on is used in place of the final
        observation's, which the actor never computes.
        """
        lanes = np.arange(actions.size)
        values = q_values.max(1)
        for rows in (self._taken, self._rewards):
            rows[1:] = rows[:-1].copy()
        taken = q_values[lanes, actions]
        self._taken[0] = taken + self._advantage_learning * (values - taken)
        self._rewards[0] = rewards
        self._length += 1
        ended = terminated | truncated
        found: list[tuple[NDArray[np.int64], int, NDArray[np.float64]]] = []
        full = np.flatnonzero(self._length > self._n_step)
        if full.size:
            returns = self._discounted(full, self._n_step, 1) + self.gamma**self._n_step * values[full]
            found.append((full, self._n_step, returns - self._taken[self._n_step, full]))
        over = np.flatnonzero(ended)
        for age in range(self._n_step if over.size else 0):
            begun = over[self._length[over] > age]
            bootstrap = np.where(terminated[begun], 0.0, self.gamma ** (age + 1) * values[begun])
            found.append((begun, age, self._discounted(begun, age, 0) + bootstrap - self._taken[age, begun]))
        self._length[ended] = 0
        return InitialPriorities(
            lanes=np.concatenate([which for which, _, _ in found] or [lanes[:0]]),
            ages=np.concatenate([np.full(which.size, age, np.int64) for which, age, _ in found] or [lanes[:0]]),
            td_errors=np.abs(np.concatenate([errors for _, _, errors in found] or [np.zeros(0)])).astype(np.float32),
        )

    def _discounted(self, lanes: NDArray[np.int64], oldest: int, newest: int) -> NDArray[np.float64]:
        """Discounted sum of the rewards from age `oldest` to age `newest`, float64 like `lanes`."""
        total = np.zeros(lanes.size)
        for power, age in enumerate(range(oldest, newest - 1, -1)):
            total += self.gamma**power * self._rewards[age, lanes]
        return total
