"""Random plans as people play platform games: each action is held for a random time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_HOLDS = (2, 5, 10, 16)
"""Longest times, in environment steps, for which a plan holds an action: swimming needs short ones, jumps long ones."""
_RUNS, _LONGEST_JUMP = (4, 12, 40), 16
"""Longest times between jumps, and of a jump, of plans that only run and jump."""


class RandomPlans:
    """Random plans of a game with these actions, which are joined names of buttons such as `right+A`."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._preferences = np.array([_preference(name.split("+")) for name in actions])
        self.fastest = int(self._preferences.argmax())
        on_ground = np.array(["A" not in name.split("+") for name in actions])
        self._run = int(np.where(on_ground, self._preferences, -1).argmax())

    def draw(self, random: np.random.Generator, count: int, steps: int) -> NDArray[np.int64]:
        """Plans [count, steps]. Half of them run and jump; the others differ in the actions they prefer, and in how
        long they hold one."""
        plans = np.empty((count, steps), np.int64)
        for number, plan in enumerate(plans):
            if number % 2:
                actions = np.resize(random.permutation((self._run, self.fastest)), steps)
                runs = random.integers(1, int(random.choice(_RUNS)) + 1, steps)
                jumps = random.integers(1, _LONGEST_JUMP + 1, steps)
                plan[:] = np.repeat(actions, np.where(actions == self._run, runs, jumps))[:steps]
                continue
            weights = random.gamma(self._preferences) + 1e-9
            actions = random.choice(weights.size, steps, p=weights / weights.sum())
            holds = random.integers(1, int(random.choice(_HOLDS)) + 1, steps)
            plan[:] = np.repeat(actions, holds)[:steps]
        return plans

    def action(self, random: np.random.Generator) -> int:
        """A random action."""
        return int(random.choice(self._preferences.size, p=self._preferences / self._preferences.sum()))


def _preference(buttons: list[str]) -> float:
    """How much random plans prefer an action, by its buttons: to run and jump to the right."""
    speed = 1 + ("right" in buttons) + ("A" in buttons) + ("B" in buttons) - 2 * ("left" in buttons)
    return 0.3 * float(max(0.5, speed) ** 1.5)
