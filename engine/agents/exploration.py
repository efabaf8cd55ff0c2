"""Schedules count environment steps or updates, never shares of a run's length: a longer run begins the same way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epsilon_ladder(lanes: int, epsilon: float) -> NDArray[np.float64]:
    """Each lane's own epsilon, epsilon^(1 + 7 i / (N - 1)): 0.4 gives 0.4 to 0.0007 (Horgan et al. 2018, section 4).

    A single lane takes the middle of the ladder.
    """
    places = np.linspace(0, 1, lanes) if lanes > 1 else np.array([0.5])
    ladder: NDArray[np.float64] = epsilon ** (1 + 7 * places)
    return ladder


def annealed(ladder: NDArray[np.float64], env_steps: int, over: int, scale: float | None = None) -> NDArray[np.float64]:
    """Epsilon of every lane after `env_steps`: linear from 1 to the lane's own over `over` environment steps.

    `scale` multiplies them, up to 1.
    """
    epsilons = 1 + (ladder - 1) * min(1.0, env_steps / over)
    return epsilons if scale is None else np.minimum(epsilons * scale, 1.0)


def random_actions(
    random: np.random.Generator, lanes: int, actions: int, masks: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    """An action for each lane [lanes], every legal one with the same probability."""
    if masks is None:
        return random.integers(0, actions, lanes)
    nth = (random.random(lanes) * masks.sum(1)).astype(np.int64)
    return (masks.cumsum(1) > nth[:, None]).argmax(1)
