"""Statistics of a run's processes, for their panel: rates since the last report, waiting times, age of weights."""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

import numpy as np

from engine.config.run_config import RunConfig
from engine.protocol.machine import Machine
from engine.protocol.messages import Lane, Member, Members
from engine.runners.learning.learner import Learner
from engine.runners.shared_state import SharedState


class MemberInfo(Protocol):
    """What is known of the members besides what they share: asked of what starts and replaces them."""

    def restarts(self, index: int) -> int:
        """How many times member `index` was replaced."""

    @property
    def cluster(self) -> Cluster | None:
        """Where the members are, if they may be on other machines."""


class Cluster(Protocol):
    """Where the members are, if they may be on other machines."""

    wire_bytes: int
    """Bytes that all members have sent."""

    def machine(self, index: int) -> str:
        """The name of a member's machine; empty until it has started."""

    def waits_for_core(self, index: int) -> bool:
        """Whether a member has no process yet because every core is taken."""

    def machines(self) -> list[Machine]:
        """Load of the other machines."""


class ProcessStats:
    """Call it once per report."""

    def __init__(self, config: RunConfig, shared_state: SharedState, member_info: MemberInfo, learner: Learner) -> None:
        self._shared_state, self._member_info, self._learner = shared_state, member_info, learner
        self._role: Any = config.runner_info.member  # a lone "player" has no such panel
        self._batch_size = learner.choices.batch_size * (
            shared_state.members if config.runner_info.averages_gradients else 1
        )
        """Samples in one update of the whole run."""
        self._wire_bytes = 0
        self._then = time.monotonic(), shared_state.steps_of.copy(), shared_state.waited.copy(), learner.updates, 0.0
        self._start: tuple[int, int] | None = None  # environment steps and updates when learning began

    def __call__(self, lanes: list[Lane], coordinator_waited: float) -> Members:
        """The message for the panel. `coordinator_waited`: seconds that this process has waited for members."""
        shared_state, member_info, learner = self._shared_state, self._member_info, self._learner
        now, steps, waited, updates = (
            time.monotonic(),
            shared_state.steps_of.copy(),
            shared_state.waited.copy(),
            learner.updates,
        )
        before, steps_before, waited_before, updates_before, own_before = self._then
        span = max(now - before, 1e-9)
        self._then = now, steps, waited, updates, coordinator_waited
        if self._start is None and updates > updates_before:
            self._start = int(steps_before.sum()), updates_before
        rates = (steps - steps_before) / span
        each = len(lanes) // shared_state.members
        cluster = member_info.cluster
        wire_bytes = 0 if cluster is None else cluster.wire_bytes
        sent, self._wire_bytes = wire_bytes - self._wire_bytes, wire_bytes
        return Members(
            members=[
                Member(
                    role=self._role,
                    index=index,
                    ready=bool(shared_state.due[index] > 0),
                    lanes=each,
                    env_steps=int(steps[index]),
                    env_steps_per_s=float(rates[index]),
                    episodes=int(shared_state.episodes_of[index]),
                    mean_return=_mean([lane.mean_return for lane in lanes[index * each : (index + 1) * each]]),
                    epsilon_high=lanes[index * each].epsilon,
                    epsilon_low=lanes[(index + 1) * each - 1].epsilon,
                    restarts=member_info.restarts(index),
                    lag=max(0, updates - int(shared_state.updates_of[index])),
                    waiting_percent=min(100.0, 100 * float(waited[index] - waited_before[index]) / span),
                    machine="" if cluster is None else cluster.machine(index),
                    waits_for_core=cluster is not None and cluster.waits_for_core(index),
                )
                for index in range(shared_state.members)
            ],
            inserts_per_s=float(rates.sum()),
            samples_per_s=(updates - updates_before) * self._batch_size / span,
            ratio=self._ratio(int(steps.sum()), updates),
            learner_waiting_percent=min(100.0, 100 * (coordinator_waited - own_before) / span),
            wire_bytes_per_s=sent / span,
            machines=[] if cluster is None else cluster.machines(),
        )

    def _ratio(self, env_steps: int, updates: int) -> float:
        if self._start is None or env_steps == self._start[0]:
            return math.nan
        return (updates - self._start[1]) * self._batch_size / (env_steps - self._start[0])


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
