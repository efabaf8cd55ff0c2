"""The settings of a learner that can be changed while it learns."""

from __future__ import annotations

from engine.agents import DoubleDQN
from engine.buffers import Replay
from engine.config.run_config import RunConfig
from engine.protocol.commands import Tunable
from engine.runners.learning.pace import Pace
from engine.runners.learning.schedules import CUT
from engine.runners.shared_state import SharedState


class LearnerSettings:
    """Those of one learner, which follow what the run's coordinator says."""

    def __init__(self, config: RunConfig, agent: DoubleDQN, replay: Replay, pace: Pace) -> None:
        self._config, self._agent, self._replay, self._pace = config, agent, replay, pace
        self._changes = 0
        self._applied: dict[str, int] = {}

    @property
    def values(self) -> dict[str, float]:
        """Their current values."""
        return {
            "learning_rate": self._agent.learning_rate,
            "beta": self._replay.beta,
            "replay_ratio": self._pace.ratio,
            "gamma": self._replay.gamma,
        }

    def follow(self, shared_state: SharedState) -> None:
        """Apply each change in `shared_state` once: a beta set anew, after which it anneals, must not be set again."""
        changes = shared_state.changes
        if changes == self._changes:
            return
        self._changes = changes
        names: tuple[Tunable, ...] = ("learning_rate", "beta", "replay_ratio", "gamma")
        for name in names:
            tunings = shared_state.tunings(name)  # read before the value, which is then at least as new
            value = shared_state.tuned(name)
            if value is not None and tunings != self._applied.get(name):
                self._applied[name] = tunings
                self._set(name, value)

    def _set(self, name: Tunable, value: float) -> None:
        match name:
            case "learning_rate":
                self._agent.learning_rate = value
                self._agent.advantage_learning = advantage_learning(self._config, value)
            case "beta":
                self._replay.beta = value
            case "replay_ratio":
                self._pace.ratio = value
            case "gamma":
                self._replay.gamma = value
                self._agent.set_gamma(value)


def advantage_learning(config: RunConfig, learning_rate: float) -> float:
    """The part of the action gap that targets lose at a learning rate."""
    usual, final = config.advantage_learning, config.final_advantage_learning
    is_low = learning_rate <= CUT * config.learning_rate
    return final if usual and is_low and final is not None else usual
