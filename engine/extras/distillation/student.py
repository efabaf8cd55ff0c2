"""The student, one network that is moved towards its teachers' Q-values, and the replay of the states that it has
visited, with these Q-values as labels.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from engine.agents.double_dqn import MAX_GRADIENT_NORM
from engine.agents.layout import as_input, autocast, in_layout_of
from engine.agents.networks import for_learning
from engine.agents.optimisers import Adam
from engine.agents.spectral import spectral_layers
from engine.agents.weights import load_weights, policy_weights
from engine.buffers.replay import ReplayBuffer
from engine.config.game import Spec
from engine.envs.lanes import Frames, PlayedStep
from engine.runs.replay_file import ReplayShape
from engine.runtime.devices import Precision

TEMPERATURE = 0.1
"""Differences of Q-values are divided by it. Of Mario's teachers, half the states have two best actions that differ by
less than 0.13."""
_VALUE_WEIGHT = 0.05
"""Of the Huber loss. It keeps the Q-values meaningful for whoever looks at them; actions are learned from the rest."""
_AVERAGE_RATE, _RECENT = 0.001, 10
"""How much of the network an update adds to the average. At first the average is over the last tenth of the updates."""


@dataclass(frozen=True)
class Fit:
    """How well the student fits its teachers in a batch."""

    loss: float
    agreement: float
    """Share of states in which both prefer the same action."""


class Student:
    """A network that learns, and the moving average of its weights, which is evaluated and saved.

    The loss in a state is KL(softmax(T / tau) || softmax(S / tau)) + a small multiple of Huber(S - T), for the Q-values
    T of the teacher and S of the student (Rusu et al. 2016, arXiv:1511.06295, section 3). Softmax does not depend on
    the state's value, so the first term is about advantages alone.
    """

    def __init__(
        self, network: nn.Module, *, learning_rate: float, threads: int = 1, precision: Precision = "float32"
    ) -> None:
        """`threads`: learning threads, among which a batch is split. `precision`: of the passes through the network;
        bfloat16 for mixed precision."""
        self.network, self._learning = network, for_learning(network)
        self.average = copy.deepcopy(network).requires_grad_(False)
        self._layers, self._averaged_layers = (spectral_layers(each) for each in (network, self.average))
        theirs = {id(buffer) for layer in self._averaged_layers for buffer in layer.buffers()}
        pairs = zip(self.average.buffers(), network.buffers(), strict=True)
        self._copied = [pair for pair in pairs if id(pair[0]) not in theirs]
        self.updates = 0
        self._parameters: list[Tensor] = list(network.parameters())
        self._optimizer = Adam(self._parameters, learning_rate=learning_rate)
        self._precision = precision
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "learn", torch.set_num_threads, (torch.get_num_threads(),))

    def set_learning_rate(self, rate: float) -> None:
        self._optimizer.learning_rate = rate

    def load(self, policy: Path) -> None:
        """Begin with the weights of a policy file. Raises `CheckpointError` if they don't fit."""
        weights = policy_weights(policy)
        for network in (self.network, self.average):
            load_weights(network, weights, policy)

    @torch.no_grad()
    def q_values(self, obs: Frames) -> Tensor:
        """Q-values [lanes, actions] of observations uint8 [lanes, stack, *frame_shape]."""
        with autocast("cpu", self._precision):
            q: Tensor = self.network(torch.from_numpy(obs))
        return q

    def update(self, obs: NDArray[np.uint8], labels: NDArray[np.float32]) -> Fit:
        """One optimiser step on observations [batch, stack, *frame_shape] with the teachers' Q-values [batch, actions]
        as labels."""
        borders = np.linspace(0, len(obs), self._threads + 1).astype(int).tolist()
        parts = self._pool.map(lambda part: self._part(obs, labels, slice(*part)), pairwise(borders))
        gradients, losses, agreements = zip(*parts, strict=True)
        for parameter, *each in zip(self._parameters, *gradients, strict=True):
            parameter.grad = in_layout_of(torch.stack(each).sum(0), parameter)
        nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT_NORM)
        self._optimizer.step()
        for layer in self._layers:
            layer.advance()
        self.updates += 1
        rate = max(_AVERAGE_RATE, _RECENT / (_RECENT + self.updates))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), self._parameters, rate)
            for average, buffer in self._copied:
                average.copy_(buffer)
            for layer in self._averaged_layers:
                layer.advance()
        return Fit(sum(losses), sum(agreements))

    def _part(
        self, obs: NDArray[np.uint8], labels: NDArray[np.float32], part: slice
    ) -> tuple[list[Tensor], float, float]:
        """Return what a part of a batch contributes to the gradients, the mean loss and the mean agreement."""
        wanted = torch.from_numpy(labels[part])
        with autocast("cpu", self._precision):
            images = as_input(self.network, torch.from_numpy(obs[part]), getattr(torch, self._precision))
            q: Tensor = self._learning(images)
        share = len(wanted) / len(obs)
        loss = share * distillation_loss(q, wanted)
        agreement = share * float((q.argmax(1) == wanted.argmax(1)).float().mean())
        return list(torch.autograd.grad(loss, self._parameters)), float(loss.detach()), agreement

    def close(self) -> None:
        self._pool.shutdown()


def distillation_loss(q: Tensor, wanted: Tensor) -> Tensor:
    """The mean loss of Q-values [batch, actions] against those of the teachers; see `Student`."""
    ours, theirs = (F.log_softmax(each / TEMPERATURE, 1) for each in (q, wanted))
    divergence = F.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return divergence + _VALUE_WEIGHT * F.smooth_l1_loss(q, wanted)


class LabelledReplay:
    """States are drawn uniformly. Every frame is stored once; see `ReplayBuffer`.

    Args:
        lanes: number of lanes that step together.
        capacity: entries per lane.
        spec: the kind of game.
    """

    def __init__(self, lanes: int, capacity: int, spec: Spec) -> None:
        shape = ReplayShape(lanes, capacity, spec.frame_shape, stack=spec.stack, frame_dtype=spec.frame_dtype)
        self._replay = ReplayBuffer(shape, reuse_batches=True)
        self._lane_storages = [self._replay.storage.part(lane, 1) for lane in range(lanes)]
        self._labels = np.empty((lanes, capacity, spec.actions), np.float32)

    @property
    def size(self) -> int:
        """Entries stored."""
        return self._replay.size

    def append(self, step: PlayedStep, labels: NDArray[np.float32]) -> None:
        """Add one step of every lane, and the teacher's Q-values [lanes, actions] in the states that were acted on."""
        entries = self._replay.storage.written
        self._labels[np.arange(len(entries)), entries % self._replay.storage.capacity] = labels
        self._replay.append(step)

    def append_to(self, lane: int, step: PlayedStep, label: NDArray[np.float32]) -> None:
        """Add one step of one lane, whose arrays have a leading axis of 1, and its label [actions]."""
        storage = self._lane_storages[lane]
        self._labels[lane, storage.written[0] % storage.capacity] = label
        storage.append(step)
        self._replay.sampler.on_append()

    def end_episode(self, lane: int) -> None:
        """Cut off a lane's episode in progress; see `FrameStorage.end_episodes`."""
        self._lane_storages[lane].end_episodes()
        self._replay.sampler.on_append()

    def sample(self, size: int, random: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Observations [size, stack, *frame_shape], valid until the next call, and labels [size, actions]."""
        batch, sample = self._replay.sample(size, random)
        return batch.obs, self._labels[sample.lanes, sample.entries % self._replay.storage.capacity]
