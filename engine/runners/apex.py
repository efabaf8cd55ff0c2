"""Ape-X (Horgan et al. 2018, arXiv:1803.00933): actors play and insert, one learner samples by priority.

Each lane has a ring of the replay, and each transition arrives with the priority that its actor computed; only the
learner touches the sum tree. To keep `replay_ratio`, whichever side is ahead waits. Actors are processes of this
machine (`engine.runners.local_actors`) or of a Ray cluster (`engine.runners.ray.actors`).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from engine.agents import Losses
from engine.buffers import NothingToSample, ReplayBuffer
from engine.config.game import Spec
from engine.config.ray_cluster import prepare
from engine.config.run_config import RunConfig
from engine.runners.coordination.coordinator import Coordinator
from engine.runners.coordination.curriculum import curriculum_level_at
from engine.runners.coordination.stats.processes import MemberInfo
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.learning.factory import make_learner
from engine.runners.learning.threads import learning_threads
from engine.runners.member_pool import LEAVE_S
from engine.runners.parent_link import ParentLink
from engine.runners.rehearsal import rehearse_acting, rehearse_learning
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, env_steps_of
from engine.runs.checkpoint_state import Choices
from engine.runtime.stopwatch import stopwatch

_PUBLISH_EVERY_S = 0.1
_NAP_S = 0.001
_UPDATES_AT_ONCE = 4
"""Most updates between two looks at commands and reports."""


class Actors(MemberInfo, Protocol):
    """The actors of a run, wherever they are."""

    shared_state: SharedState
    """Orders to the actors, and their counts and episodes."""
    replay: ReplayBuffer
    """What they play."""

    def start(self, network: nn.Module, updates: int, choices: Choices, begun_at: int) -> None:
        """Start them with the weights after `updates` updates. `begun_at`: environment steps of the run so far."""

    def publish(self, network: nn.Module, updates: int) -> None:
        """Let them have newer weights."""

    def collect(self) -> None:
        """Take over what they have played, where they can't store it themselves, and start what may be played next."""

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop them; kill those that still run after `leave_s` seconds."""


class Runner:
    """The learner. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: ParentLink, mailbox: FrameMailbox, resume_from: Path | None
    ) -> None:
        self._config = config
        spec = rehearse_acting(config, torch.device("cpu"), link.log)  # actors find the compiled code in the cache
        rehearse_learning(config, spec)
        self._actors = _actors(config, spec, link, mailbox)
        self._shared_state = self._actors.shared_state
        self._shared_state.open(curriculum_level_at(config, resume_from))
        threads = learning_threads(config, 1)
        start = Start(run, config, resume_from)
        (learn_seed,) = start.seeds.generate_state(1)
        self._replay = self._actors.replay
        self._learner = make_learner(
            start,
            spec,
            seed=int(learn_seed),
            threads=threads.learn_threads,
            targets_ahead=threads.targets_ahead,
            log=link.log,
            replay=self._replay,
        )
        self._learner.before_update = link.beat
        self._published_at = 0.0
        self._taken = 0  # environment steps already counted by the learner
        self._begun_at = env_steps_of(resume_from)
        self._throttle()
        self._actors.start(self._learner.agent.online, self._learner.updates, self._learner.choices, self._begun_at)
        self._coordinator = Coordinator(start, link, self._learner, self._shared_state, threads, self._actors)

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator = self._coordinator
        while coordinator.proceed([] if coordinator.paused else self._iterate()):
            pass
        self._actors.close()
        coordinator.finish()

    def close(self) -> None:
        self._actors.close(leave_s=0)  # after an orderly end they have exited already
        self._learner.close()

    def _iterate(self) -> list[Losses]:
        learner, shared_state, config = self._learner, self._shared_state, self._config
        learner.settings.follow(shared_state)
        self._actors.collect()
        played = shared_state.played
        learner.pace.count(played - self._taken)
        self._taken = played
        self._throttle()
        due = min(learner.pace.due(config.learner_ahead), _UPDATES_AT_ONCE)
        self._replay.sampler.on_append()  # after `played` was read: what made an update due can be sampled
        losses: list[Losses] = []
        with contextlib.suppress(NothingToSample):  # actors have overwritten a small ring; they will be throttled
            for _ in range(due):
                losses += learner.learn(1)
        self._throttle()
        now = time.monotonic()
        if losses and now - self._published_at >= _PUBLISH_EVERY_S:
            self._actors.publish(learner.agent.online, learner.updates)
            self._published_at = now
        if not losses:
            with stopwatch("wait"):
                time.sleep(_NAP_S)
            self._coordinator.reporter.waited += time.monotonic() - now
        return losses

    def _throttle(self) -> None:
        """Set how far actors may play ahead of learning, at most to the run's end."""
        learner, config = self._learner, self._config
        least = learner.pace.due_within  # with fewer steps, no update would ever be due
        ahead = max(config.actors_ahead, least) - learner.pace.backlog
        if burnin_left := learner.pace.burnin_left:  # until then the backlog of a checkpoint can't be learned
            ahead = max(ahead, 0) + burnin_left
        self._shared_state.limit_env_steps(min(self._taken + ahead, config.steps - self._begun_at))


def _actors(config: RunConfig, spec: Spec, link: ParentLink, mailbox: FrameMailbox) -> Actors:
    if not config.on_ray:
        from engine.runners.local_actors import LocalActors

        return LocalActors(config, spec, link, mailbox)
    address = prepare(config.ray)
    from engine.runners.ray.actors import RayActors  # Ray is an extra, which may not be installed

    return RayActors(config, spec, link, mailbox, address)
