"""Reports of a run's coordinator: episodes as they end, and every half second the progress, the replay, the processes
and where their time goes.
"""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.agents.double_dqn import Losses
from engine.agents.exploration import Holds, annealed, member_ladders
from engine.buffers.replay import Replay
from engine.buffers.sampling import EPSILON, Survey
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS
from engine.monitoring import split
from engine.protocol.messages import Distribution, Lane, Lanes, Machine, Member, Members, ReplayContents, State
from engine.protocol.messages import TimeSplits as TimeSplitsMessage
from engine.runners.coordination.stats import Counters, LaneStats
from engine.runners.coordination.tuning import RunCurriculum, curriculum_at
from engine.runners.learning.learner import Learner
from engine.runners.links import ParentLink
from engine.runners.shared_state import SharedState
from engine.runners.start import Start
from engine.runs.checkpoint_state import Extra
from engine.runtime.stopwatch import stopwatch


class MemberInfo(Protocol):
    """What is known of the members besides what they share: asked of what starts and replaces them."""

    def restarts(self, index: int) -> int:
        """Return how many times member `index` was replaced."""

    @property
    def cluster(self) -> Cluster | None:
        """Return where the members are, if they may be on other machines."""


class Cluster(Protocol):
    """Where the members are, if they may be on other machines."""

    wire_bytes: int
    """Bytes that all members have sent."""

    def machine(self, index: int) -> str:
        """The name of a member's machine; empty until it has started."""

    def waits_for_core(self, index: int) -> bool:
        """Return whether a member has no process yet because every core is taken."""

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


BINS = 24
_EVERY_S = 5.0
_ZERO = 2 * EPSILON  # priorities up to here belong to TD errors of about zero
_OLDEST = 0.9  # of the age of the oldest entry


class ReplayStats:
    """Call it once per report, in the coordinator. It surveys the replay every `_EVERY_S` seconds, or `at_once`."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._contents: ReplayContents | None = None
        self._next_at = float("-inf")

    def __call__(self, at_once: bool) -> ReplayContents | None:
        now = time.monotonic()
        if at_once or self._contents is None or now >= self._next_at:
            self._next_at = now + _EVERY_S
            self._contents = summarise(self._replay.survey())
        return self._contents


def summarise(survey: Survey) -> ReplayContents | None:
    """The distributions of a survey; None if nothing can be drawn.

    Ages are weighted by the probability of a draw: what learning gets to see, without the noise of a few batches.
    """
    if not survey.ages.size:
        return None
    oldest = max(1.0, float(survey.ages.max()))
    order = np.argsort(survey.ages)
    ages, passed = survey.ages[order], np.cumsum(survey.chances[order] / survey.chances.sum())
    drawn = Distribution(
        low=0.0,
        high=oldest,
        median=float(ages[min(int(np.searchsorted(passed, 0.5)), ages.size - 1)]),
        shares=_shares(survey.ages / oldest, survey.chances),
    )
    oldest_share = float(survey.chances[survey.ages >= _OLDEST * oldest].sum() / survey.chances.sum())
    if survey.priorities is None:
        return ReplayContents(ages=drawn, oldest_share=oldest_share)
    is_zero = survey.priorities <= _ZERO
    priorities = survey.priorities if is_zero.all() else survey.priorities[~is_zero]
    powers = np.log10(priorities)
    low, high = powers.min(), powers.max()
    distribution = Distribution(
        low=float(priorities.min()),
        high=float(priorities.max()),
        median=float(np.median(priorities)),
        shares=_shares((powers - low) / ((high - low) or 1.0), np.ones_like(powers)),
    )
    return ReplayContents(
        ages=drawn, oldest_share=oldest_share, priorities=distribution, zero_share=float(is_zero.mean())
    )


def _shares(places: NDArray[Any], weights: NDArray[np.float64]) -> list[float]:
    """The share of the weights in each of `BINS` equal bins; places [n] are from 0 to 1."""
    bins = np.minimum((places * BINS).astype(np.int64), BINS - 1)
    sums = np.bincount(bins, weights, BINS)
    shares: list[float] = np.minimum(sums / sums.sum(), 1.0).tolist()
    return shares


class TimeSplits:
    """Call it once per report, in the coordinator: the splits since the last call."""

    def __init__(self, runner: str, shared_state: SharedState) -> None:
        info = RUNNERS[runner]
        self._shared_state = shared_state
        self._first = 0 if info.learner else 1  # the first member that is not the coordinator
        self._coordinator = info.coordinator
        self._names = [f"{info.member} {index}" for index in range(self._first, shared_state.members)]
        self._before = self._rows()

    def __call__(self) -> TimeSplitsMessage:
        before, self._before = self._before, self._rows()
        names = (self._coordinator, *self._names)
        return TimeSplitsMessage(
            processes=[split(early, late, name) for name, early, late in zip(names, before, self._before, strict=True)]
        )

    def _rows(self) -> list[list[float]]:
        return [stopwatch.row(), *(row.tolist() for row in self._shared_state.times[self._first :])]


_REPORT_EVERY_S = 0.5


class Reporter:
    """Counts what the members of `shared_state` have played and `learner` has learned, since the run's beginning.

    `member_info`: started the members; its processes are reported as well. None: this process is the only one.
    """

    def __init__(
        self,
        start: Start,
        extra: Extra,
        link: ParentLink,
        learner: Learner,
        shared_state: SharedState,
        member_info: MemberInfo | None,
    ) -> None:
        config = self._config = start.config
        self._link, self._learner, self._learners, self._shared_state = link, learner, start.learners, shared_state
        self.counters = Counters(extra.counters)
        self._before = self.counters.env_steps, self.counters.frames  # of earlier sessions
        self.lane_stats = LaneStats(config.outcome, shared_state.members, config.parallel_envs)
        self._ladder = member_ladders(config.parallel_envs, config.epsilon, shared_state.members).ravel()
        curriculum = curriculum_at(config, extra)
        self._curriculum = None if curriculum is None else RunCurriculum(curriculum, self._ladder, link, shared_state)
        self._time_splits = TimeSplits(config.runner, shared_state)
        self._replay_stats = ReplayStats(learner.replay)
        self._process_stats = None if member_info is None else ProcessStats(config, shared_state, member_info, learner)
        self.waited = 0.0
        """Seconds that this process has waited for members."""
        self.judged = 0, 0
        """Episodes that the final evaluation has played, and will play."""
        self._reported_at = float("-inf")
        self._publish()

    def record(self, losses: list[Losses]) -> None:
        """Count and publish what is new, and report the episodes that have ended."""
        counters, shared_state = self.counters, self._shared_state
        counters.record_losses(losses)
        counters.env_steps = self._before[0] + shared_state.played
        counters.frames = self._before[1] + shared_state.frames
        self._publish()
        ended = list(shared_state.new_episodes())
        if ended:
            epsilons, outcome = self._epsilons(), self._config.outcome
            for member, episode in ended:
                place = member * self._config.parallel_envs + episode.lane
                counters.record_episode(episode.episode_return)
                self.lane_stats.record_episode(member, episode, counters.env_steps)
                if self._curriculum is not None:
                    self._curriculum.record_episode(place, episode.task_name(outcome), episode.success)
                self._link.send(
                    episode.message(
                        outcome,
                        actor=member,
                        env_steps=counters.env_steps,
                        episode=counters.episodes,
                        epsilon=float(epsilons[place]),
                    )
                )
        if self._curriculum is not None:
            self._curriculum.advance(counters.env_steps)

    def report(self, state: State, at_once: bool = False) -> None:
        """Report the progress, and what panels show of lanes, processes and replay, if it is time or `at_once`."""
        now = time.monotonic()
        if not at_once and now - self._reported_at < _REPORT_EVERY_S:
            return
        self._reported_at = now
        learner, epsilons = self._learner, self._epsilons()
        holds = Holds(learner.spec.hold, learner.spec.hold_power)
        self._link.send(
            self.counters.report(
                state=state,
                steps=self._config.steps,
                episodes=self._config.episodes,
                updates=learner.updates,
                epsilon=float(epsilons.mean()),
                random_share=float(holds.random_share(epsilons).mean()),
                learning_rate=learner.agent.learning_rate,
                replay_size=learner.replay.size * self._learners,  # each has a replay and a burn-in of its own
                replay_capacity=learner.replay.capacity * self._learners,
                beta=learner.replay.beta,
                burnin_left=learner.pace.burnin_left * self._learners,
                replay=self._replay_stats(at_once),
                judged=self.judged[0],
                to_judge=self.judged[1],
            )
        )
        lanes = self.lane_stats.lanes(epsilons)
        self._link.send(Lanes(lanes=lanes, tasks=self.lane_stats.tasks()))
        self._link.send(self._time_splits())
        if self._curriculum is not None:
            self._link.send(self._curriculum.report())
        if self._process_stats is not None:
            self._link.send(self._process_stats(lanes, self.waited))

    def state(self) -> dict[str, Any]:
        """The fields `counters`, `records`, `stages` and `curriculum` of a checkpoint."""
        return {
            "counters": self.counters.state(),
            "records": self.lane_stats.state(),
            "stages": self.lane_stats.tasks_state(),
            "curriculum": None if self._curriculum is None else self._curriculum.state(),
        }

    def _publish(self) -> None:
        self._shared_state.publish(self.counters.env_steps, self._learner.updates, self._learner.replay.beta)

    def _epsilons(self) -> NDArray[np.float64]:
        """Of each lane of all members."""
        scale = self._shared_state.tuned("epsilon_scale")
        return annealed(self._ladder, self.counters.env_steps, self._config.epsilon_steps, scale)
