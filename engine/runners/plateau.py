"""Cuts the learning rate when evaluations stop improving, or have little left to gain.

With a constant learning rate the policy of a run keeps changing after it has become good, and loses in one evaluation
what it had in the last. See docs/recipe.md for what the cuts are worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CUT = 0.3
"""Factor of each cut."""
LOWEST = 0.02
"""The learning rate is not cut below this share of the run's own."""
GOOD = 0.95
"""Clear rate from which on every evaluation cuts."""
PATIENCE = 8
"""Evaluations without a better score after which the learning rate is cut."""

Score = tuple[float, ...]
"""Compared in order: clear rate, then mean return."""


class PlateauSchedule:
    """The schedule of a run whose own learning rate is `learning_rate`."""

    def __init__(self, learning_rate: float) -> None:
        self._lowest = LOWEST * learning_rate
        self._best: Score = ()
        self._since_best = 0

    def after(self, score: Score, learning_rate: float) -> float:
        """The learning rate after an evaluation with `score` (clear rate, mean return)."""
        if score > self._best:
            self._best, self._since_best = score, 0
        else:
            self._since_best += 1
        if score[0] < GOOD and self._since_best < PATIENCE:
            return learning_rate
        self._since_best = 0
        return min(learning_rate, max(CUT * learning_rate, self._lowest))

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""
        return {"best": list(self._best), "since_best": self._since_best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`. Raises `KeyError`, `TypeError` or `ValueError` if it can't be one."""
        self._best, self._since_best = tuple(float(part) for part in state["best"]), int(state["since_best"])
