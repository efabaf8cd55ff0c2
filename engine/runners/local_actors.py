"""Ape-X actors in processes of this machine. Replay, weights and counts are in memory that they share with the learner:
each writes its own lanes of the replay and pulls weights when it wants them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch import nn

from engine.agents.weights import SharedWeights, parameter_count
from engine.buffers import ReplayBuffer, SharedMemory
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.runners.apex_actor import ApexActor
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.heartbeat import FIRST_S, step_s
from engine.runners.learning.replay_factory import shared_replay, shared_storage
from engine.runners.live_screen import LiveScreen
from engine.runners.member_pool import LocalMembers, Role
from engine.runners.parent_link import ParentLink
from engine.runners.shared_state import SharedState
from engine.runs.checkpoint_state import Choices
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import thread_budget

_NAP_S = 0.001


@dataclass(frozen=True)
class _Shared:
    """What actors need at their start."""

    config: RunConfig
    spec: Spec
    shared_state: SharedMemory
    replay: SharedMemory
    weights: SharedMemory
    mailbox: FrameMailbox
    choices: dict[str, Any]
    begun_at: int


class LocalActors(LocalMembers):
    """The actors of a run on this machine; see `engine.runners.apex.Actors`."""

    def __init__(self, config: RunConfig, spec: Spec, link: ParentLink, mailbox: FrameMailbox) -> None:
        self._config, self._spec, self._link, self._mailbox = config, spec, link, mailbox
        self._state_memory, self._replay_memory, self._weights_memory = SharedMemory(), SharedMemory(), SharedMemory()
        super().__init__(SharedState(config.num_actors, self._state_memory))
        self.replay: ReplayBuffer = shared_replay(config, spec, config.num_actors, self._replay_memory)

    def start(self, network: nn.Module, updates: int, choices: Choices, begun_at: int) -> None:
        self._weights = SharedWeights(parameter_count(network), self._weights_memory)
        self.publish(network, updates)
        shared = _Shared(
            self._config,
            self._spec,
            self._state_memory,
            self._replay_memory,
            self._weights_memory,
            self._mailbox,
            choices.state(),
            begun_at,
        )
        self.begin(Role("actor"), _act, (shared,), self._link)

    def publish(self, network: nn.Module, updates: int) -> None:
        self._weights.publish(network, updates)

    def collect(self) -> None:
        """Nothing to do: actors store their steps themselves."""


def _act(link: ParentLink, index: int, restarts: int, shared: _Shared) -> None:
    """The main function of actor `index`: plays until told to stop."""
    config = shared.config
    shared_state = SharedState(config.num_actors, shared.shared_state)
    threads = thread_budget(config.parallel_envs, 1, config.num_actors)
    choices, level = Choices(**shared.choices), shared_state.level
    actor = ApexActor(config, choices, index, restarts, shared.begun_at, level, threads.lane_threads)
    storage = shared_storage(config, shared.spec, config.num_actors, shared.replay)
    storage = storage.part(index * actor.lanes, actor.lanes)
    storage.end_episodes()  # a previous actor may have crashed in the middle of an episode or a write
    weights = SharedWeights(parameter_count(actor.network), shared.weights)
    screen = LiveScreen(shared_state, index, actor.actor, shared.mailbox)
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
