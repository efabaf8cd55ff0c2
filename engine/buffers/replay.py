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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.memory import HostMemory
from engine.buffers.sampling import (
    PrioritizedSampler,
    Sample,
    Sampler,
    Survey,
    UniformSampler,
    of_one_batch,
)
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import Column, ReplayShape, checked_state


class Replay(ABC):
    """What a learner uses, and what replays on the host and on a device have in common."""

    storage: Any
    """The `FrameStorage` or `DeviceStorage`."""
    beta: float
    """Importance-sampling exponent; 0 for uniform sampling."""

    @property
    def size(self) -> int:
        """Entries stored; on a device without final frames of truncated episodes, until the rings are full."""
        return int(self.storage.size)

    @property
    def capacity(self) -> int:
        """Maximum number of entries, over all lanes."""
        return int(self.storage.lanes * self.storage.capacity)

    @property
    def room(self) -> int:
        """Entries that fit before one is overwritten, in the lanes that have begun, or in all while none has."""
        return int(self.storage.room)

    @property
    def gamma(self) -> float:
        """Discount per environment step, of batches drawn from now on."""
        return float(self.storage.gamma)

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self.storage.gamma = gamma

    @abstractmethod
    def append(self, step: PlayedStep) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""

    @abstractmethod
    def sample(self, batch_size: int, random: np.random.Generator) -> tuple[Any, Any]:
        """Draw a batch; also return the drawn entries with their importance weights [batch].

        Raises `NothingToSample` if no entry can be sampled now.
        """

    @abstractmethod
    def update_priorities(self, sample: Any, td_errors: Any) -> None:
        """Set the priorities of a sample from absolute TD errors [batch]; skip entries overwritten since. Anneals beta.

        If there are priorities, raises `ValueError` if an error is not finite or negative; tensors on a device are not
        asked, and there such errors change no priority.
        """

    @abstractmethod
    def end_episodes(self, which: NDArray[np.bool_] | None = None) -> None:
        """End the episodes in progress; see `FrameStorage.end_episodes`."""

    @abstractmethod
    def survey(self) -> Survey:
        """Ages and priorities of what is held, of at most `SURVEYED` entries. Changes nothing; waits for a device."""

    def state(self) -> dict[str, Column]:
        """The contents for a checkpoint. Views: `save_arrays` must write them before the next append. Waits for a
        device."""
        parts = {"storage": self.storage.state(), "sampler": self.sampler_state()}
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    @abstractmethod
    def sampler_state(self) -> Mapping[str, Column]:
        """What `state` holds besides the storage's."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> bool:
        """Load the state of any replay. If the shapes differ, change nothing and return False.

        Raises `ValueError`, before anything is changed, if no replay can have written it.
        """
        parts = checked_state(state, self.storage.shape)
        if parts is None:
            return False
        storage, sampler = parts
        self.storage.load_state(storage)
        self.load_sampler_state(sampler)
        return True

    @abstractmethod
    def load_sampler_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load the `sampler_state` of any replay, after the storage's."""

    def close(self) -> None:
        """Release files."""


class ReplayBuffer(Replay):
    """Uniform replay of n-step transitions; every frame is stored once.

    From files it draws one call ahead, so that the disk reads the next batch meanwhile (`engine.buffers.sampling`); new
    priorities then take effect one update later.

    Args:
        shape: its rings; their lanes are the first axis of the arrays passed to `append`.
        gamma: discount per environment step.
        priorities: whether other processes append to the storage, with initial priorities.
        memory: `HostMemory` (default), `SharedMemory` or `MappedMemory`.
        reuse_batches: reuse the memory of the previous batch, which is faster; a batch is then valid only until the
            next one is drawn.
    """

    storage: FrameStorage
    sampler: Sampler

    def __init__(
        self,
        shape: ReplayShape,
        *,
        gamma: float = 0.99,
        priorities: bool = False,
        memory: HostMemory | None = None,
        reuse_batches: bool = False,
    ) -> None:
        self.storage = FrameStorage(shape, gamma=gamma, priorities=priorities, memory=memory)
        self._reuse = reuse_batches
        self._batch: Batch | None = None
        self._ahead: Sample | None = None
        self.sampler = UniformSampler(self.storage)

    @property
    def beta(self) -> float:
        return self.sampler.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self.sampler.beta = beta

    def append(self, step: PlayedStep) -> None:
        self.storage.append(step)
        self.sampler.on_append()

    def sample(self, batch_size: int, random: np.random.Generator) -> tuple[Batch, Sample]:
        draw = self._draw_ahead if self.storage.memory.on_disk else self.sampler.sample
        sample = draw(batch_size, random)
        into = self._batch if self._batch is not None and len(self._batch.obs) == batch_size else None
        batch = self.storage.gather(sample.lanes, sample.entries, into=into)
        if self._reuse:
            self._batch = batch
        if self.storage.memory.shared:
            sample = self._replace_lost(batch, sample, random)
        return batch, sample

    def _draw_ahead(self, batch_size: int, random: np.random.Generator) -> Sample:
        """Return what was drawn in the previous call; entries overwritten since are drawn again."""
        sample, self._ahead = self._ahead, None
        if sample is None or len(sample.weights) != batch_size:
            sample = self.sampler.sample(batch_size, random)
        lost = ~self.storage.sampleable(sample.lanes, sample.entries)
        if lost.any():
            spare = self.sampler.sample(batch_size, random)
            mixed = {name: np.where(lost, ours, vars(sample)[name]) for name, ours in vars(spare).items()}
            sample = of_one_batch(Sample(**mixed))
        self._ahead = self.sampler.sample(batch_size, random)
        self.storage.prefetch(self._ahead.lanes, self._ahead.entries)
        return sample

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
        self.sampler.update(sample, td_errors)

    def end_episodes(self, which: NDArray[np.bool_] | None = None) -> None:
        self.storage.end_episodes(which)
        self.sampler.on_append()

    def survey(self) -> Survey:
        return self.sampler.survey()

    def sampler_state(self) -> dict[str, NDArray[Any]]:
        ahead = {} if self._ahead is None else {f"ahead.{name}": array for name, array in vars(self._ahead).items()}
        return self.sampler.state() | ahead

    def load_sampler_state(self, state: dict[str, NDArray[Any]]) -> None:
        ahead = {name.removeprefix("ahead."): array for name, array in state.items() if name.startswith("ahead.")}
        self._ahead = Sample(**ahead) if ahead and self.storage.memory.on_disk else None
        self.sampler.load_state(state)

    def close(self) -> None:
        self.storage.memory.close()


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
        self.sampler = PrioritizedSampler(self.storage, alpha=alpha, beta=beta, beta_annealing=beta_annealing)
        self.sampler.on_append()  # what files hold
