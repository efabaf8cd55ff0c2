"""Replay of the states that the student has visited, with the teachers' Q-values as labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.buffers.replay import ReplayBuffer
from engine.config.game import Spec
from engine.envs.lanes import PlayedStep


class LabelledReplay:
    """States are drawn uniformly. Every frame is stored once; see `ReplayBuffer`.

    Args:
        lanes: number of lanes that step together.
        capacity: entries per lane.
        spec: the kind of game.
    """

    def __init__(self, lanes: int, capacity: int, spec: Spec) -> None:
        self._replay = ReplayBuffer(
            lanes, capacity, spec.frame_shape, stack=spec.stack, frame_dtype=spec.frame_dtype, reuse_batches=True
        )
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
