"""Ape-X (Horgan et al. 2018, arXiv:1803.00933): actors play and insert, one learner samples by priority.

Each lane has a ring of the replay, and each transition arrives with the priority that its actor computed; only the
learner touches the sum tree. To keep `replay_ratio`, whichever side is ahead waits. Actors are processes of this
machine or of a Ray cluster (`engine.extras.ray.actors`). Here they share replay, weights and counts in memory with
the learner: each writes its own lanes of the replay and pulls weights when it wants them.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import nn

from engine.agents.double_dqn import Losses
from engine.agents.weights import SharedWeights, vector_size
from engine.buffers.memory import SharedMemory
from engine.buffers.replay import ReplayBuffer
from engine.buffers.sampling import NothingToSample
from engine.config.features import feature
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.runners import Choices
from engine.runners.actor import LiveScreen
from engine.runners.apex_actor import ApexActor
from engine.runners.coordination.coordinator import Coordinator
from engine.runners.coordination.reporter import MemberInfo
from engine.runners.coordination.tuning import curriculum_level_at
from engine.runners.learning.factory import (
    make_learner,
    rehearse_acting,
    rehearse_learning,
    shared_replay,
    shared_storage,
)
from engine.runners.links import FrameMailbox, ParentLink
from engine.runners.processes import LEAVE_S, LocalMembers, Role
from engine.runners.shared_state import FIRST_S, SharedState, step_s
from engine.runners.start import Start, env_steps_of, learning_threads
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import thread_budget

_NAP_S = 0.001
_PUBLISH_EVERY_S = 0.1
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
        self._observed = self._replay.storage.written.copy()  # [lanes], entries that the agent has observed
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
        self._coordinator.close()

    def _iterate(self) -> list[Losses]:
        learner, shared_state, config = self._learner, self._shared_state, self._config
        learner.settings.follow(shared_state)
        self._actors.collect()
        played = shared_state.played
        self._observe()
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

    def _observe(self) -> None:
        storage, seen = self._replay.storage, self._observed
        written = storage.written.copy()
        if self._config.spec.normalized and (lanes := np.flatnonzero(written > seen)).size:
            seen = np.maximum(seen, written - storage.capacity)
            new = [storage.frames[lane, np.arange(seen[lane], written[lane]) % storage.capacity] for lane in lanes]
            self._learner.agent.observe(np.concatenate(new))
        self._observed = written

    def _throttle(self) -> None:
        """Set how far actors may play ahead of learning, at most to the run's end."""
        learner, config = self._learner, self._config
        least = learner.pace.due_within  # with fewer steps, no update would ever be due
        ahead = max(config.actors_ahead, least) - learner.pace.backlog
        if burnin_left := learner.pace.burnin_left:  # until then the backlog of a checkpoint can't be learned
            ahead = max(ahead, 0) + burnin_left
        self._shared_state.limit_env_steps(min(self._taken + ahead, config.steps - self._begun_at))


def _actors(config: RunConfig, spec: Spec, link: ParentLink, mailbox: FrameMailbox) -> Actors:
    if config.ray == "none":
        return LocalActors(config, spec, link, mailbox)
    address = feature("ray", "--ray").prepare(config.ray)  # before Ray is imported
    actors: Actors = feature("ray actors", "--ray")(config, spec, link, mailbox, address)
    return actors


class LocalActors(LocalMembers):
    """The actors of a run in processes of this machine; see `Actors`."""

    def __init__(self, config: RunConfig, spec: Spec, link: ParentLink, mailbox: FrameMailbox) -> None:
        self._config, self._spec, self._link, self._mailbox = config, spec, link, mailbox
        self._state_memory, self._replay_memory, self._weights_memory = SharedMemory(), SharedMemory(), SharedMemory()
        super().__init__(SharedState(config.num_actors, self._state_memory))
        self.replay: ReplayBuffer = shared_replay(config, spec, config.num_actors, self._replay_memory)

    def start(self, network: nn.Module, updates: int, choices: Choices, begun_at: int) -> None:
        self._weights = SharedWeights(vector_size(network), self._weights_memory)
        self.publish(network, updates)
        memories = self._state_memory, self._replay_memory, self._weights_memory
        arguments = self._config, self._spec, choices, begun_at, self._mailbox, *memories
        self.begin(Role("actor"), _act, arguments, self._link)

    def publish(self, network: nn.Module, updates: int) -> None:
        self._weights.publish(network, updates)

    def collect(self) -> None:
        """Nothing to do: actors store their steps themselves."""


def _act(
    link: ParentLink,
    index: int,
    restarts: int,
    config: RunConfig,
    spec: Spec,
    choices: Choices,
    begun_at: int,
    mailbox: FrameMailbox,
    state_memory: SharedMemory,
    replay_memory: SharedMemory,
    weights_memory: SharedMemory,
) -> None:
    """The main function of actor `index`: plays until told to stop."""
    shared_state = SharedState(config.num_actors, state_memory)
    threads = thread_budget(config.parallel_envs, 1, config.num_actors)
    actor = ApexActor(config, choices, index, restarts, begun_at, shared_state.level, threads.lane_threads)
    storage = shared_storage(config, spec, config.num_actors, replay_memory)
    storage = storage.part(index * actor.lanes, actor.lanes)
    storage.end_episodes()  # a previous actor may have crashed in the middle of an episode or a write
    weights = SharedWeights(vector_size(actor.network), weights_memory)
    screen = LiveScreen(shared_state, index, actor.actor, mailbox)
    played, pulled_at = 0, -config.weight_pull_steps
    while not shared_state.stopped:
        shared_state.beat(index, step_s(config) if played else max(FIRST_S, step_s(config)))
        shared_state.publish_times(index)
        if shared_state.paused or not shared_state.below_limit:
            before = time.monotonic()
            with stopwatch("wait"):
                time.sleep(_NAP_S)
            if not shared_state.paused:
                shared_state.waited[index] += time.monotonic() - before
            screen.show()
            continue
        if played - pulled_at >= config.weight_pull_steps:
            pulled_at = played
            updates = weights.pull(actor.network)
            if updates is not None:
                shared_state.updates_of[index] = updates
        epsilon_scale, gamma = shared_state.tuned("epsilon_scale"), shared_state.tuned("gamma")
        actions = actor.choose(shared_state.env_steps, epsilon_scale, gamma, shared_state.level)
        screen.show()
        step = actor.finish(actions)
        with stopwatch("insert"):
            storage.append(step.played, step.priorities)
        shared_state.record(index, actor.lanes, step.game_frames, step.episodes)
        played += actor.lanes
    actor.close()
