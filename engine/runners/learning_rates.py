"""Schedules that change the learning rate after evaluations. See docs/recipe.md for what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engine.config.run_config import RunConfig

CUT, SECOND_CUT = 0.3, 0.1
"""The learning rate after each cut, as a share of the run's own. From the first on, `final_gamma` holds, whatever the
kind of schedule."""
GOOD, RELIABLE = 0.8, 0.95
"""The learning rate is cut after an evaluation with at least the first clear rate, and again after one with at least
the second."""
PATIENCE = 8
"""The first cut also follows this many evaluations in a row without a better score."""
ENOUGH_EPISODES = 20
"""Evaluations with fewer episodes can't show that a policy is reliable: there is no second cut."""

HALVED_AFTER = 1_000_000
"""Environment steps after which `DecaySchedule` has halved the learning rate."""

_SLOWER = 0.1
"""Rate at which the policy follows the online network from the second cut on, as a share of `policy_tau`."""

Score = tuple[float, ...]
"""Compared in order: clear rate, then mean return."""


class Schedule(Protocol):
    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        """The learning rate after an evaluation with `score` (clear rate, mean return)."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`. Raises `KeyError`, `TypeError` or `ValueError` if it can't be one."""


def make_schedule(kind: str, learning_rate: float, episodes: int) -> Schedule | None:
    """The schedule `kind` of a run whose own learning rate is `learning_rate` and whose evaluations have that many
    `episodes`; None for `constant`."""
    match kind:
        case "plateau":
            return PlateauSchedule(learning_rate, episodes)
        case "decay":
            return DecaySchedule(learning_rate)
    return None


def policy_tau_at(learning_rate: float, config: RunConfig) -> float:
    """The rate at which the policy follows the online network. From the second cut on it is lower: the policy stays
    near the one that was reliable, while the online network, which may not be, settles."""
    return config.policy_tau * (_SLOWER if learning_rate <= SECOND_CUT * config.learning_rate else 1.0)


class DecaySchedule:
    """Lets the learning rate fall in inverse proportion to the environment steps, as in stochastic approximation."""

    def __init__(self, learning_rate: float) -> None:
        self._initial = learning_rate

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        return min(learning_rate, self._initial / (1 + env_steps / HALVED_AFTER))

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class PlateauSchedule:
    """Cuts the learning rate when an evaluation is good, or when evaluations stop improving, and once more when the
    policy is reliable.

    With a constant learning rate the policy of a run keeps changing after it has become good, and loses in one
    evaluation what it had in the last.
    """

    def __init__(self, learning_rate: float, episodes: int) -> None:
        self._after_cut, self._after_second = CUT * learning_rate, SECOND_CUT * learning_rate
        self._episodes = episodes
        self._best: Score = (0.0,)  # less than any real score, and its clear rate can be read
        self._since_best = 0

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        if score > self._best:
            self._best, self._since_best = score, 0
        else:
            self._since_best += 1
        if self._best[0] >= RELIABLE and self._episodes >= ENOUGH_EPISODES:
            return min(learning_rate, self._after_second)
        if self._best[0] < GOOD and self._since_best < PATIENCE:
            return learning_rate
        return min(learning_rate, self._after_cut)

    def state(self) -> dict[str, Any]:
        return {"best": list(self._best), "since_best": self._since_best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._best, self._since_best = tuple(float(part) for part in state["best"]), int(state["since_best"])
