"""What the coordinator of a run counts and reports: episodes as they end, and every half second the progress."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.agents import Losses
from engine.agents.exploration import annealed, member_ladders, random_share
from engine.protocol.messages import Lanes, State
from engine.runners.coordination.curriculum import RunCurriculum, curriculum_at
from engine.runners.coordination.stats.counters import Counters
from engine.runners.coordination.stats.lanes import LaneStats
from engine.runners.coordination.stats.processes import MemberInfo, ProcessStats
from engine.runners.coordination.stats.replay import ReplayStats
from engine.runners.coordination.stats.time_split import TimeSplits
from engine.runners.learning.learner import Learner
from engine.runners.parent_link import ParentLink
from engine.runners.shared_state import SharedState
from engine.runners.start import Start
from engine.runs.checkpoint_state import Extra

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
        self._link.send(
            self.counters.report(
                state=state,
                steps=self._config.steps,
                episodes=self._config.episodes,
                updates=learner.updates,
                epsilon=float(epsilons.mean()),
                random_share=float(random_share(epsilons, learner.spec.hold).mean()),
                learning_rate=learner.agent.learning_rate,
                replay_size=learner.replay.size * self._learners,  # each has a replay and a burn-in of its own
                replay_capacity=learner.replay.capacity * self._learners,
                beta=learner.replay.beta,
                burnin_left=learner.pace.burnin_left * self._learners,
                replay=self._replay_stats(at_once),
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
