"""Schedules that change the learning rate after evaluations. See bench/experiments/learning-rate.md for what they
are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

CUT = 0.3
"""The learning rate after the cut, as a share of the run's own. Once any schedule has reached it, `final_gamma` holds.
`final_advantage_learning` holds whenever the learning rate is this low."""
GOOD = 0.8
"""The learning rate is cut after an evaluation with at least this success rate."""
PATIENCE = 8
"""It is also cut after this many evaluations in a row without a better score."""

HALVED_AFTER = 1_000_000
"""Environment steps after which `DecaySchedule` has halved the learning rate."""

Score = tuple[float, ...]
"""Compared in order: success rate, then mean return."""


class Schedule(Protocol):
    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        """The learning rate after an evaluation with `score` (success rate, mean return)."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`. Raises `KeyError`, `TypeError` or `ValueError` if it can't be one."""


def make_schedule(kind: str, learning_rate: float, begin: int = 0) -> Schedule | None:
    """The schedule `kind` of a run whose own learning rate is `learning_rate`; None for `constant`.

    `begin`: environment steps of the run at which its task began.
    """
    if kind == "decay":
        return DecaySchedule(learning_rate, begin)
    return PlateauSchedule(learning_rate) if kind == "plateau" else None


class DecaySchedule:
    """Lets the learning rate fall in inverse proportion to the environment steps, as in stochastic approximation."""

    def __init__(self, learning_rate: float, begin: int = 0) -> None:
        self._initial, self._begin = learning_rate, begin

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        return min(learning_rate, self._initial / (1 + max(0, env_steps - self._begin) / HALVED_AFTER))

    def state(self) -> dict[str, Any]:
        return {"begin": self._begin}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._begin = int(state["begin"])


class PlateauSchedule:
    """Cuts the learning rate once: when an evaluation is good, or when evaluations stop improving.

    With a constant learning rate the policy of a run keeps changing after it has become good, and loses in one
    evaluation what it had in the last. More cuts have not helped (bench/experiments/learning-rate.md).
    """

    def __init__(self, learning_rate: float) -> None:
        self._after_cut = CUT * learning_rate
        self._best: Score = (0.0,)  # less than any real score, and its success rate can be read
        self._since_best = 0

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        if score > self._best:
            self._best, self._since_best = score, 0
        else:
            self._since_best += 1
        if self._best[0] < GOOD and self._since_best < PATIENCE:
            return learning_rate
        return min(learning_rate, self._after_cut)

    def state(self) -> dict[str, Any]:
        return {"best": list(self._best), "since_best": self._since_best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._best, self._since_best = tuple(float(part) for part in state["best"]), int(state["since_best"])
