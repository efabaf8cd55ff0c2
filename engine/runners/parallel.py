"""Workers on a shared model: each acts, has its own replay, and applies its gradients to a model in shared memory.

This is asynchronous n-step Q-learning (Mnih et al. 2016, arXiv:1602.01783, section 4) with replay.

A worker loads the shared model with each of its updates, and at least every `pull_every` environment steps. Worker 0
coordinates. A single worker computes the same as the `single` runner, bit for bit.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path

from engine.agents.double_dqn import Losses
from engine.agents.shared_dqn import ProcessLock, SharedDQN
from engine.buffers.memory import SharedMemory
from engine.config.run_config import RunConfig
from engine.runners.actor_learner import ActorLearner
from engine.runners.coordination.coordinator import Coordinator
from engine.runners.coordination.tuning import curriculum_level_at
from engine.runners.learning.factory import MakeAgent
from engine.runners.links import FrameMailbox, ParentLink
from engine.runners.processes import LocalMembers, Role
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, env_steps_of
from engine.runtime.stopwatch import stopwatch

_NAP_S = 0.02


class Runner:
    """Worker 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: ParentLink, mailbox: FrameMailbox, resume_from: Path | None
    ) -> None:
        begun_at = env_steps_of(resume_from)
        seed = None if resume_from is None else [config.seed, 0, begun_at]
        start = Start(run, config, resume_from, learners=config.num_processes, seed=seed)
        memory = SharedMemory()
        make_agent = functools.partial(SharedDQN, memory=SharedMemory(), lock=ProcessLock())
        self._shared_state = SharedState(config.num_processes, memory)
        self._shared_state.open(curriculum_level_at(config, resume_from))
        self._shared_state.limit_env_steps(config.steps - begun_at)
        self._worker = _Worker(start, self._shared_state, mailbox, link.log, make_agent)
        self._worker.actor_learner.before_update = link.beat
        self._worker.agent.store()
        learner = self._worker.actor_learner.learner
        arguments = dataclasses.replace(start, choices=learner.choices.state()), begun_at, mailbox, memory, make_agent
        self._others = LocalMembers(self._shared_state)
        self._others.begin(Role("worker", first=1), work, arguments, link)
        threads = self._worker.actor_learner.threads
        self._coordinator = Coordinator(start, link, learner, self._shared_state, threads, self._others)

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, worker = self._coordinator, self._worker
        while coordinator.proceed([] if coordinator.paused else worker.iterate()):
            if coordinator.paused:
                worker.actor_learner.screen.show()
        self._others.close()
        worker.agent.pull()
        coordinator.finish()

    def close(self) -> None:
        self._others.close(leave_s=0)  # after an orderly end they have exited already
        self._worker.actor_learner.close()
        self._coordinator.close()


class _Worker:
    """An `ActorLearner` on the shared model."""

    def __init__(
        self,
        start: Start,
        shared_state: SharedState,
        mailbox: FrameMailbox,
        log: Callable[[str], None],
        make_agent: MakeAgent,
    ) -> None:
        self.actor_learner = ActorLearner(start, shared_state, mailbox, log, make_agent)
        self.actor_learner.learner.replay.end_episodes()  # new games start, also if the replay was restored
        agent = self.actor_learner.learner.agent
        assert isinstance(agent, SharedDQN)
        self.agent = agent
        self._shared_state, self._index = shared_state, start.index
        self._looked_at = 0

    def iterate(self) -> list[Losses]:
        played = int(self._shared_state.steps_of[self._index])
        if played - self._looked_at >= self.actor_learner.config.weight_pull_steps:
            self._looked_at = played
            self.agent.pull()
        losses = self.actor_learner.iterate()
        self._shared_state.updates_of[self._index] = self.agent.updates
        return losses


def work(
    link: ParentLink,
    index: int,
    restarts: int,
    first: Start,
    begun_at: int,
    mailbox: FrameMailbox,
    memory: SharedMemory,
    make_agent: MakeAgent,
) -> None:
    """The main function of worker `index` > 0: plays and learns until told to stop. `first`: what worker 0 began with,
    and what its learner has chosen."""
    config = first.config
    shared_state = SharedState(config.num_processes, memory)
    start = dataclasses.replace(
        first,
        index=index,
        seed=[config.seed, index, restarts, begun_at],  # a resumed run does not repeat random numbers
        resume_from=None if restarts else first.resume_from,  # a later restart may find it rotated away
    )
    worker = _Worker(start, shared_state, mailbox, link.log, make_agent)
    worker.agent.pull()
    if restarts:
        learner = worker.actor_learner.learner
        learner.settings.follow(shared_state)
        learner.replay.beta = shared_state.beta
    while not shared_state.stopped:
        shared_state.beat(index)
        if shared_state.paused or not shared_state.below_limit:
            with stopwatch("wait"):
                time.sleep(_NAP_S)
        else:
            worker.iterate()
    worker.actor_learner.close()
