"""Replay buffers for an agent's loop: a storage and a sampler in one object.

>>> import numpy as np
>>> shape = ReplayShape(lanes=2, capacity=100, frame_shape=(8, 8), stack=4, n_step=3)
>>> replay = PrioritizedReplayBuffer(shape, gamma=0.99)
>>> random, none = np.random.default_rng(0), np.zeros(2, bool)
>>> for _ in range(20):
...     frames = random.integers(0, 256, (2, 8, 8), np.uint8)
...     replay.append(PlayedStep(frames, np.array([0, 1]), np.ones(2, np.float32), none, none, frames))
>>> batch, sample = replay.sample(32, random)
>>> batch.obs.shape, batch.returns.shape, sample.weights.shape
((32, 4, 8, 8), (32,), (32,))
>>> replay.update_priorities(sample, td_errors=np.ones(32, np.float32))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.memory import Memory
from engine.buffers.sampling import (
    PrefetchingSampler,
    PrioritizedSampler,
    Sample,
    Sampler,
    Survey,
    UniformSampler,
    of_one_batch,
)
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import Column, ReplayShape, checked_state

_C = TypeVar("_C", bound=Column)


class Replay(Protocol):
    """The interface that a learner uses, for replays on the host or on a device."""

    beta: float
    """Importance-sampling exponent; 0 for uniform sampling."""
    gamma: float
    """Discount per environment step, of batches drawn from now on."""

    @property
    def size(self) -> int:
        """Entries stored."""

    @property
    def capacity(self) -> int:
        """Maximum number of entries, over all lanes."""

    @property
    def room(self) -> int:
        """Entries that fit before one is overwritten, in the lanes that have begun, or in all while none has."""

    def append(self, step: PlayedStep) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""

    def sample(self, batch_size: int, random: np.random.Generator) -> tuple[Any, Any]:
        """Draw a batch; also return the drawn entries with their importance weights [batch].

        Raises `NothingToSample` if no entry can be sampled now.
        """

    def update_priorities(self, sample: Any, td_errors: Any) -> None:
        """Set the priorities of a sample from absolute TD errors [batch]; skip entries overwritten since.

        Raises `ValueError` if an error is not finite or negative; tensors on a device are not asked, and there such
        errors change no priority.
        """

    def end_episodes(self) -> None:
        """End the episodes in progress; see `FrameStorage.end_episodes`."""

    def survey(self) -> Survey:
        """Ages and priorities of what is held, of at most `SURVEYED` entries. Changes nothing; waits for a device."""

    def state(self) -> Mapping[str, Column]:
        """The contents for a checkpoint. Views: `save_arrays` must write them before the next append."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> bool:
        """Load the state of a replay. If the shapes differ, change nothing and return False.

        Raises `ValueError`, before anything is changed, if no replay can have written it.
        """

    def close(self) -> None:
        """Release files."""


class ReplayBuffer:
    """Uniform replay of n-step transitions; every frame is stored once.

    Args:
        shape: its rings; their lanes are the first axis of the arrays passed to `append`.
        gamma: discount per environment step.
        priorities: whether other processes append to the storage, with initial priorities.
        memory: `HostMemory` (default), `SharedMemory` or `MappedMemory`.
        reuse_batches: reuse the memory of the previous batch, which is faster; a batch is then valid only until the
            next one is drawn.
    """

    sampler: Sampler

    def __init__(
        self,
        shape: ReplayShape,
        *,
        gamma: float = 0.99,
        priorities: bool = False,
        memory: Memory | None = None,
        reuse_batches: bool = False,
    ) -> None:
        self.storage = FrameStorage(shape, gamma=gamma, priorities=priorities, memory=memory)
        self._reuse = reuse_batches
        self._batch: Batch | None = None
        self._use(UniformSampler(self.storage))

    @property
    def size(self) -> int:
        """Entries stored."""
        return self.storage.size

    @property
    def capacity(self) -> int:
        """Maximum number of entries, over all lanes."""
        return self.storage.lanes * self.storage.capacity

    @property
    def room(self) -> int:
        """Entries that fit before one is overwritten, in the lanes that have begun, or in all while none has."""
        return self.storage.room

    @property
    def beta(self) -> float:
        return self.sampler.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self.sampler.beta = beta

    @property
    def gamma(self) -> float:
        return self.storage.gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self.storage.gamma = gamma

    def append(self, step: PlayedStep) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""
        self.storage.append(step)
        self.sampler.on_append()

    def sample(self, batch_size: int, random: np.random.Generator) -> tuple[Batch, Sample]:
        """Draw a batch; also return the drawn entries with their importance weights [batch].

        Raises `NothingToSample` if no entry can be sampled now.
        """
        sample = self.sampler.sample(batch_size, random)
        into = self._batch if self._batch is not None and len(self._batch.obs) == batch_size else None
        batch = self.storage.gather(sample.lanes, sample.entries, into=into)
        if self._reuse:
            self._batch = batch
        if self.storage.memory.shared:
            sample = self._replace_lost(batch, sample, random)
        return batch, sample

    def _replace_lost(self, batch: Batch, sample: Sample, random: np.random.Generator) -> Sample:
        """Draw and gather again the entries that another process may have overwritten during the gather."""
        lost = np.flatnonzero(~self.storage.sampleable(sample.lanes, sample.entries))
        if not lost.size:
            return sample
        while lost.size:
            self.sampler.on_append()
            spare = self.sampler.sample(lost.size, random)
            gathered = self.storage.gather(spare.lanes, spare.entries)
            for ours, theirs in ((batch, gathered), (sample, spare)):
                for name, array in vars(theirs).items():
                    if array is not None:
                        getattr(ours, name)[lost] = array
            lost = lost[~self.storage.sampleable(spare.lanes, spare.entries)]
        return of_one_batch(sample)

    def update_priorities(self, sample: Sample, td_errors: NDArray[np.float32]) -> None:
        """Set the priorities of a sample from absolute TD errors [batch]; skip entries overwritten since.

        With priorities, raises `ValueError` if an error is not finite or negative.
        """
        self.sampler.update(sample, td_errors)

    def end_episodes(self) -> None:
        """End the episodes in progress; see `FrameStorage.end_episodes`."""
        self.storage.end_episodes()
        self.sampler.on_append()

    def survey(self) -> Survey:
        """Ages and priorities of what is held, of at most `SURVEYED` entries."""
        return self.sampler.survey()

    def state(self) -> dict[str, NDArray[Any]]:
        """The contents for a checkpoint: views of the arrays, not copies."""
        return join_state(self.storage.state(), self.sampler.state())

    def load_state(self, state: dict[str, NDArray[Any]]) -> bool:
        """See `Replay.load_state`."""
        parts = checked_state(state, self.storage.shape)
        if parts is None:
            return False
        storage, sampler = parts
        self.storage.load_state(storage)
        self.sampler.load_state(sampler)
        return True

    def close(self) -> None:
        """Release files."""
        self.storage.memory.close()

    def _use(self, sampler: Sampler) -> None:
        self.sampler = PrefetchingSampler(sampler, self.storage) if self.storage.memory.on_disk else sampler
        self.sampler.on_append()


class PrioritizedReplayBuffer(ReplayBuffer):
    """Prioritized replay (see `PrioritizedSampler`).

    Args:
        alpha: priority exponent; 0 is uniform.
        beta: initial importance-sampling exponent.
        beta_annealing: added to beta at every update of priorities, up to 1.
        options: keyword arguments of `ReplayBuffer`.
    """

    def __init__(
        self, shape: ReplayShape, *, alpha: float = 0.6, beta: float = 0.4, beta_annealing: float = 1e-5, **options: Any
    ) -> None:
        super().__init__(shape, **options)
        self._use(PrioritizedSampler(self.storage, alpha=alpha, beta=beta, beta_annealing=beta_annealing))


def join_state(storage: Mapping[str, _C], sampler: Mapping[str, _C]) -> dict[str, _C]:
    """Merge two states into one, with keys `storage.<name>` and `sampler.<name>`."""
    parts = {"storage": storage, "sampler": sampler}
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
