"""Ape-X (Horgan et al. 2018, arXiv:1803.00933): actors play and insert, one learner samples by priority.

The replay lies in shared memory. Each lane has a ring buffer with a single writer, and each transition arrives with the
priority that its actor computed; only the learner touches the sum tree. There are no locks. To keep `replay_ratio`,
whichever side is ahead waits.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.agents import Losses
from engine.agents.autotune import Choices
from engine.agents.initial_priorities import TDErrors
from engine.agents.networks import make_networks
from engine.agents.weights import SharedWeights, parameter_count
from engine.buffers import NothingToSample, SharedMemory
from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.envs.vec_env import Frames, Spec
from engine.runners.actor import Actor
from engine.runners.actor_learner import apply_tuning, budget, epsilons_of_member, show_screen, step_s
from engine.runners.coordinator import Coordinator, curriculum_level_at, env_steps_of
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostLink
from engine.runners.learner import Learner
from engine.runners.replay_factory import shared_replay, shared_storage
from engine.runners.shared_state import SharedState
from engine.runners.stats.processes import ProcessStats
from engine.runners.worker_pool import WorkerPool
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import thread_budget

_PUBLISH_EVERY_S = 0.1
_NAP_S = 0.001
_UPDATES_AT_ONCE = 4
"""Most updates between two looks at commands and reports."""


@dataclass(frozen=True)
class Shared:
    """What the learner passes to its actors at their start."""

    config: RunConfig
    shared_state: SharedMemory
    replay: SharedMemory
    weights: SharedMemory
    screen: FrameMailbox
    choices: dict[str, Any]
    begun_at: int
    """Environment steps of the run at its start, so that a resumed run does not repeat random numbers."""


class Runner:
    """The learner. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: HostLink, screen: FrameMailbox, resume_from: Path | None
    ) -> None:
        self._config = config
        state_memory, replay_memory, weights_memory = SharedMemory(), SharedMemory(), SharedMemory()
        self._shared_state = SharedState(config.num_actors, state_memory)
        self._shared_state.open(curriculum_level_at(config, resume_from))
        threads = budget(config, 1)
        spec = spec_of(config)
        replay = shared_replay(config, spec, config.num_actors, replay_memory)
        (learn_seed,) = np.random.SeedSequence(config.seed).generate_state(1)
        self._replay = replay
        self._learner = Learner(
            config,
            spec,
            seed=int(learn_seed),
            threads=threads.learn_threads,
            replay=replay,
            beat=link.beat,
            log=link.log,
            resume_from=resume_from,
        )
        self._weights = SharedWeights(parameter_count(self._learner.agent.online), weights_memory)
        self._weights.publish(self._learner.agent.online, self._learner.updates)
        self._published_at = 0.0
        self._taken = 0  # environment steps already counted by the learner
        self._begun_at = env_steps_of(resume_from)
        self._throttle()
        shared = Shared(
            config,
            state_memory,
            replay_memory,
            weights_memory,
            screen,
            self._learner.choices.state(),
            self._begun_at,
        )
        self._pool = WorkerPool("actor", act, (shared,), self._shared_state, link)
        self._process_stats = ProcessStats(
            "actor", self._shared_state, self._pool, self._learner, self._learner.choices.batch_size
        )
        self._coordinator = Coordinator(
            run,
            config,
            link,
            self._learner,
            self._shared_state,
            threads=threads,
            resume_from=resume_from,
            members=self._process_stats,
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator = self._coordinator
        while coordinator.proceed([] if coordinator.paused else self._iterate()):
            pass
        self._shared_state.stop()
        self._pool.close()
        coordinator.finish()

    def close(self) -> None:
        self._shared_state.stop()
        self._pool.close(leave_s=0)  # after an orderly end they have exited already
        self._learner.close()

    def _iterate(self) -> list[Losses]:
        learner, shared_state, config = self._learner, self._shared_state, self._config
        apply_tuning(shared_state, learner)
        played = shared_state.played
        learner.count_env_steps(played - self._taken)
        self._taken = played
        self._throttle()
        due = min(learner.due(config.learner_ahead), _UPDATES_AT_ONCE)
        self._replay.sampler.on_append()  # after `played` was read: what made an update due can be sampled
        losses: list[Losses] = []
        with contextlib.suppress(NothingToSample):  # actors have overwritten a small ring; they will be throttled
            for _ in range(due):
                losses += learner.learn(1)
        self._throttle()
        now = time.monotonic()
        if losses and now - self._published_at >= _PUBLISH_EVERY_S:
            self._weights.publish(learner.agent.online, learner.updates)
            self._published_at = now
        if not losses:
            with stopwatch("wait"):
                time.sleep(_NAP_S)
            self._process_stats.waited += time.monotonic() - now
        return losses

    def _throttle(self) -> None:
        """Set how far actors may play ahead of learning, at most to the run's end."""
        learner, config = self._learner, self._config
        ahead = max(config.actors_ahead, learner.due_within)  # less would be a deadlock
        ahead += self._taken + learner.burnin_left - learner.backlog
        self._shared_state.limit_env_steps(min(ahead, config.steps - self._begun_at))


class _Policy:
    """Q-values from the latest weights pulled."""

    def __init__(self, shared: Shared, spec: Spec) -> None:
        self._network, _ = make_networks(shared.config, spec)
        self._network.requires_grad_(False)
        self._weights = SharedWeights(parameter_count(self._network), shared.weights)
        choices = Choices(**shared.choices)
        fast = choices.device == "cpu" and choices.precision == "bfloat16"
        self._autocast = torch.autocast("cpu", torch.bfloat16) if fast else contextlib.nullcontext()

    def pull(self) -> int | None:
        return self._weights.pull(self._network)

    def __call__(self, obs: Frames) -> torch.Tensor:
        with torch.no_grad(), self._autocast:
            q: torch.Tensor = self._network(torch.from_numpy(obs))
            return q


def act(link: HostLink, index: int, restarts: int, shared: Shared) -> None:
    """The main function of actor `index`: plays until told to stop."""
    config = shared.config
    shared_state = SharedState(config.num_actors, shared.shared_state)
    threads = thread_budget(config.parallel_envs, 1, config.num_actors)
    torch.set_num_threads(1)
    seeds = np.random.SeedSequence([config.seed, index, restarts, shared.begun_at]).generate_state(2)
    env = make_lanes(config, config.parallel_envs, threads=threads.lane_threads, seed=int(seeds[0]))
    if config.curriculum:
        env.set_curriculum_level(shared_state.level)
    spec = env.spec
    storage = shared_storage(config, spec, config.num_actors, shared.replay).part(index * env.lanes, env.lanes)
    storage.end_episodes()  # a previous actor may have crashed in the middle of an episode or a write
    policy = _Policy(shared, spec)
    actor = Actor(
        env,
        ladder=epsilons_of_member(config, index, config.num_actors),
        epsilon_steps=config.epsilon_steps,
        seed=int(seeds[1]),
    )
    errors = TDErrors(env.lanes, config.n_step, config.gamma)
    shown_at, pulled_at = float("-inf"), -config.weight_pull_steps
    played = 0
    while not shared_state.stopped:
        shared_state.beat(index, step_s(config))
        shared_state.publish_times(index)
        if shared_state.paused or not shared_state.below_limit:
            before = time.monotonic()
            with stopwatch("wait"):
                time.sleep(_NAP_S)
            if not shared_state.paused:
                shared_state.waited[index] += time.monotonic() - before
            shown_at = show_screen(shared_state, index, actor, shared.screen, shown_at)
            continue
        if played - pulled_at >= config.weight_pull_steps:
            pulled_at = played
            updates = policy.pull()
            if updates is not None:
                shared_state.counts[index, 3] = updates
        if config.curriculum:
            env.set_curriculum_level(shared_state.level)
        frames, masks = actor.frames, actor.masks
        actions = actor.choose(policy, shared_state.env_steps, shared_state.tuned("epsilon_scale"))
        shown_at = show_screen(shared_state, index, actor, shared.screen, shown_at)
        step, ended = actor.finish(actor.begin(actions))
        assert actor.decision is not None
        q_values = actor.decision.q_values.numpy()
        with stopwatch("insert"):
            priorities = errors.step(q_values, actions, step.rewards, step.terminated, step.truncated)
            storage.append(step.played(frames, actions, masks), priorities)
        shared_state.record(index, env.lanes, step.emulated, ended)
        played += env.lanes
    actor.close()


def spec_of(config: RunConfig) -> Spec:
    """The `Spec` of a run's game."""
    env = make_lanes(config, 1, threads=1, seed=0)
    try:
        return env.spec
    finally:
        env.close()
