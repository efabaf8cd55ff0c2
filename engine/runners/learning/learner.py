"""The learner: stores what is played, and learns from the replay whenever an update is due: after the burn-in,
`replay_ratio` samples are learned for each environment step.

Its settings can change while it learns, by the user's commands or a schedule of the learning rate
(bench/experiments/learning-rate.md says what schedules are worth).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from engine.agents.double_dqn import DoubleDQN, Losses
from engine.buffers.replay import Replay, ReplayBuffer
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.runners import Choices
from engine.envs.lanes import PlayedStep, on_host
from engine.protocol.commands import Tunable
from engine.protocol.framing import HopelessError
from engine.runners.shared_state import SharedState
from engine.runs.checkpoint_state import CheckpointState
from engine.runtime.stopwatch import stopwatch

if TYPE_CHECKING:
    from engine.runners.learning.updates import DeviceUpdate, HostUpdate


class Pace:
    """Counts environment steps as credit for updates.

    Args:
        lanes: that append to `replay`.
        burnin: environment steps before learning starts. Unless the rings that play are full before, the replay must
            also hold a batch, and in each lane a complete n-step window.
    """

    def __init__(self, config: RunConfig, replay: Replay, lanes: int, burnin: int) -> None:
        self._replay, self._batch_size = replay, config.batch_size
        self._least = max(config.batch_size, lanes * (config.n_step + 1))
        self.ratio = config.replay_ratio
        """Samples per environment step."""
        self.resume(0.0, burnin)

    def resume(self, credit: float, burnin: int) -> None:
        """Continue with so many updates due, once the replay holds `burnin` transitions."""
        self.credit, self.burnin = credit, burnin
        self._played = self._replay.size  # from now on without the final frames, which the replay counts
        self._has_begun = False
        self._burnin_left = self.burnin_left  # at the last count

    @property
    def burnin_left(self) -> int:
        """Environment steps until learning starts. Actors that wait for a core are not waited for."""
        if self._has_begun:  # though an actor that begins later has room
            return 0
        left = max(self.burnin - self._played, self._least - self._replay.size)
        return max(0, min(left, self._replay.room))

    @property
    def fill(self) -> int:
        """Entries of the replay with which learning starts, for `resume`."""
        return self.burnin + max(0, self._replay.size - self._played)

    @property
    def backlog(self) -> int:
        """Environment steps played but not yet learned from."""
        return math.ceil(self.credit * self._batch_size / self.ratio)

    @property
    def due_within(self) -> int:
        """Environment steps after which an update is certainly due."""
        return math.ceil(self._batch_size / self.ratio) + 1

    def count(self, env_steps: int) -> None:
        """Count environment steps added to the replay. Those of the burn-in give no credit."""
        self._played += env_steps
        burnin, self._burnin_left = self._burnin_left, self.burnin_left
        self._has_begun = self._burnin_left == 0
        if self._has_begun:
            self.credit += max(0, env_steps - burnin) * self.ratio / self._batch_size

    def due(self, ahead: int = 0) -> int:
        """Updates due now, or `ahead` environment steps later."""
        if self._burnin_left > 0:  # credit from a checkpoint waits until the replay is filled
            return 0
        return max(0, int(self.credit + ahead * self.ratio / self._batch_size))


class LearnerRandom:
    """Draws batches, on a `host` or a CUDA `device`. Also seeds PyTorch itself, which draws initial weights."""

    def __init__(self, seed: int, device: torch.device) -> None:
        torch.manual_seed(seed)
        self.host = np.random.default_rng(seed)
        self.device = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None

    def state(self) -> dict[str, Any]:
        """The fields of `CheckpointState`."""
        return {
            "random": self.host.bit_generator.state,
            "torch_random": _digits(torch.get_rng_state()),
            "device_random": None if self.device is None else _digits(self.device.get_state()),
        }

    def load_state(self, state: CheckpointState) -> None:
        self.host.bit_generator.state = msgspec.to_builtins(state.random)
        torch.set_rng_state(_state(state.torch_random))
        if self.device is not None and state.device_random is not None:
            self.device.set_state(_state(state.device_random))


def _digits(state: torch.Tensor) -> str:
    """The state of a generator of PyTorch in hexadecimal digits."""
    return state.numpy().tobytes().hex()


def _state(digits: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(bytes.fromhex(digits), np.uint8).copy())


CUT = 0.3
"""The learning rate after the cut, as a share of the run's own. Once any schedule has reached it, `final_gamma` holds.
`final_advantage_learning` holds whenever the learning rate is this low."""
GOOD = 0.8
"""The learning rate is cut after an evaluation with at least this success rate."""
PATIENCE = 8
"""It is also cut after this many evaluations in a row without a better score."""

HALVED_AFTER = 1_000_000
"""Environment steps after which `DecaySchedule` has halved the learning rate."""

Score = tuple[float, ...]
"""Compared in order: success rate, then mean return."""


def make_schedule(kind: str, learning_rate: float, begin: int = 0) -> DecaySchedule | PlateauSchedule | None:
    """The schedule `kind` of a run whose own learning rate is `learning_rate`; None for `constant`.

    `begin`: environment steps of the run at which its task began.
    """
    if kind == "decay":
        return DecaySchedule(learning_rate, begin)
    return PlateauSchedule(learning_rate) if kind == "plateau" else None


class DecaySchedule:
    """Lets the learning rate fall in inverse proportion to the environment steps, as in stochastic approximation."""

    def __init__(self, learning_rate: float, begin: int = 0) -> None:
        self._initial, self._begin = learning_rate, begin

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        return min(learning_rate, self._initial / (1 + max(0, env_steps - self._begin) / HALVED_AFTER))

    def state(self) -> dict[str, Any]:
        return {"begin": self._begin}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._begin = int(state["begin"])


class PlateauSchedule:
    """Cuts the learning rate once: when an evaluation is good, or when evaluations stop improving.

    With a constant learning rate the policy of a run keeps changing after it has become good, and loses in one
    evaluation what it had in the last. More cuts have not helped (bench/experiments/learning-rate.md).
    """

    def __init__(self, learning_rate: float) -> None:
        self._after_cut = CUT * learning_rate
        self._best: Score = (0.0,)  # less than any real score, and its success rate can be read
        self._since_best = 0

    def after(self, score: Score, learning_rate: float, env_steps: int) -> float:
        if score > self._best:
            self._best, self._since_best = score, 0
        else:
            self._since_best += 1
        if self._best[0] < GOOD and self._since_best < PATIENCE:
            return learning_rate
        return min(learning_rate, self._after_cut)

    def state(self) -> dict[str, Any]:
        return {"best": list(self._best), "since_best": self._since_best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._best, self._since_best = tuple(float(part) for part in state["best"]), int(state["since_best"])


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


class DivergedError(HopelessError):
    """The loss is not finite; further training would only write bad checkpoints."""


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
        self,
        config: RunConfig,
        spec: Spec,
        choices: Choices,
        update: HostUpdate | DeviceUpdate,
        pace: Pace,
        random: LearnerRandom,
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
        if isinstance(step.frames, torch.Tensor) and isinstance(self.replay, ReplayBuffer):  # from boards on a device
            step = dataclasses.replace(step, frames=on_host(step.frames), final_frames=on_host(step.final_frames))
        self.replay.append(step)
        self.agent.observe(step.frames)
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
