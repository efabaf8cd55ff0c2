"""The learner: stores what is played, and learns from the replay whenever an update is due."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

from engine.agents import DoubleDQN, Losses
from engine.buffers import Replay, ReplayBuffer
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.envs.lanes import PlayedStep, on_host
from engine.protocol.failures import HopelessError
from engine.runners.learning.learner_random import LearnerRandom
from engine.runners.learning.pace import Pace
from engine.runners.learning.settings import LearnerSettings
from engine.runs.checkpoint_state import Choices
from engine.runtime.stopwatch import stopwatch


class DivergedError(HopelessError):
    """The loss is not finite; further training would only write bad checkpoints."""


class Update(Protocol):
    """Takes updates of `agent` with batches from `replay`: `HostUpdate` or `DeviceUpdate`."""

    @property
    def agent(self) -> DoubleDQN: ...

    @property
    def replay(self) -> Replay: ...

    def begin(self) -> None:
        """Begin the next update in other threads, if there are some. Until that update, only act."""

    def __call__(self) -> None:
        """Take one update. Raises `NothingToSample` if the replay has nothing that can be sampled."""

    @property
    def should_read(self) -> bool:
        """Whether it is time to `read`, which may wait for a device."""

    def read(self) -> Losses | None:
        """Losses since the last reading; None without an update."""


class Learner:
    """Double DQN on replay.

    Args:
        config: the run's, with the batch size and the device of this learner.
        spec: of the game.
        choices: how updates are computed.
        update: takes an update.
        pace: when updates are due.
        random: what `update` draws with.
    """

    def __init__(
        self, config: RunConfig, spec: Spec, choices: Choices, update: Update, pace: Pace, random: LearnerRandom
    ) -> None:
        self.config, self.spec, self.choices, self.pace, self.random = config, spec, choices, pace, random
        self.update, self.agent, self.replay = update, update.agent, update.replay
        self.settings = LearnerSettings(config, self.agent, self.replay, pace)
        self.before_update: Callable[[], object] = lambda: None
        """Called before every update: many can be due at once, and the process must give heartbeats."""

    @property
    def updates(self) -> int:
        """Updates of the network since it was created."""
        return self.agent.updates

    @stopwatch("insert")
    def insert(self, step: PlayedStep) -> None:
        """Store one step of all lanes."""
        if isinstance(self.replay, ReplayBuffer):  # after a resume, boards on a device have frames on both sides
            step = dataclasses.replace(step, frames=on_host(step.frames), final_frames=on_host(step.final_frames))
        self.replay.append(step)
        self.pace.count(len(step.actions))

    def begin(self, updates: int | None = None) -> None:
        """Begin the first of the updates that `learn` will take next, in other threads if there are some. Until then,
        only act."""
        if self.pace.due() if updates is None else updates:
            self.update.begin()

    def learn(self, updates: int | None = None) -> list[Losses]:
        """Take `updates` updates (default: all that are due); returns the losses that are known by now.

        Raises `DivergedError` if the loss is not finite; `NothingToSample`, with the update still due, if other
        processes have overwritten everything that could be sampled.
        """
        done: list[Losses] = []
        for _ in range(self.pace.due() if updates is None else updates):
            self.before_update()
            self.update()
            self.pace.credit -= 1
            if self.update.should_read:
                done += self.unread_losses()
        return done

    def unread_losses(self) -> list[Losses]:
        """Losses of updates on a device that `learn` has not returned yet. Raises `DivergedError` like it."""
        losses = self.update.read()
        if losses is None:
            return []
        if not math.isfinite(losses.loss):
            raise DivergedError(f"the loss is {losses.loss} at update {self.updates}; try a lower --learning-rate")
        return [losses]

    def close(self) -> None:
        self.agent.close()
        self.replay.close()
