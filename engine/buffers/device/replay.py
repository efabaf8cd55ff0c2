"""Prioritized sampling on a torch device, and the replay that a learner uses there.

As `PrioritizedSampler` has it, leaf by leaf; alpha 0 and beta 0 make it uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.buffers.device.storage import Array, DeviceColumn, DeviceStorage, TensorBatch
from engine.buffers.device.sum_tree import DeviceSumTree
from engine.buffers.replay import fits, joined, parted
from engine.buffers.sampling import EPSILON, NothingToSample
from engine.buffers.saved_arrays import Column


@dataclass(frozen=True)
class TensorSample:
    """A `Sample` on a device."""

    lanes: Tensor  # int64 [batch]
    entries: Tensor  # int64 [batch]
    weights: Tensor  # float32 [batch]


class DeviceReplayBuffer:
    """Prioritized replay on `device`; arguments as of `PrioritizedReplayBuffer`."""

    def __init__(
        self,
        lanes: int,
        capacity: int,
        frame_shape: tuple[int, ...],
        *,
        stack: int = 4,
        n_step: int = 1,
        gamma: float = 0.99,
        mask_actions: int = 0,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_annealing: float = 1e-5,
        device: torch.device,
    ) -> None:
        self.storage = DeviceStorage(
            lanes,
            capacity,
            frame_shape,
            stack=stack,
            n_step=n_step,
            gamma=gamma,
            mask_actions=mask_actions,
            device=device,
        )
        self.beta = beta
        self._alpha, self._beta_annealing = alpha, beta_annealing
        self._tree = DeviceSumTree(lanes * capacity, device)
        self._largest = torch.ones((), dtype=torch.float64, device=device)  # p^alpha
        self._seen = torch.zeros(lanes, dtype=torch.int64, device=device)  # entries written at the last append
        self._weighed = torch.zeros(lanes, dtype=torch.int64, device=device)  # entries below have got a priority

    @property
    def size(self) -> int:
        """Entries held, without the final frames of episodes while the rings are filling."""
        return self.storage.size

    @property
    def capacity(self) -> int:
        """Entries that all lanes hold at most."""
        return self.storage.lanes * self.storage.capacity

    def append(
        self,
        frames: Array,
        actions: Array,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        final_frames: Array,
        masks: Array | None = None,
        final_masks: Array | None = None,
    ) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""
        self.storage.append(frames, actions, rewards, terminated, truncated, final_frames, masks, final_masks)
        self._weigh()

    def sample(
        self, batch_size: int, random: np.random.Generator | torch.Generator
    ) -> tuple[TensorBatch, TensorSample]:
        """A batch to learn from, and which entries it is of, with the weights of their losses [batch].

        A NumPy generator's numbers travel to the device; a torch generator must be the device's own. Raises
        `NothingToSample` if no entry can be sampled yet.
        """
        storage, tree, device = self.storage, self._tree, self.storage.device
        if storage.is_young and not int(tree.count):  # only then it is worth waiting for the device
            raise NothingToSample
        if isinstance(random, torch.Generator):
            jitter = torch.rand(batch_size, generator=random, dtype=torch.float64, device=device)
        else:
            jitter = storage.bring(random.random(batch_size))
        strata = (torch.arange(batch_size, device=device) + jitter) / batch_size
        leaves = tree.find(strata * tree.total)
        lanes, slots = leaves // storage.capacity, leaves % storage.capacity
        newest = storage.written[lanes] - 1
        entries = newest - (newest - slots) % storage.capacity
        weights = (tree.count * tree[leaves] / tree.total) ** -self.beta
        sample = TensorSample(lanes, entries, (weights / weights.max()).float())
        return storage.gather(lanes, entries), sample

    def update_priorities(self, sample: TensorSample, td_errors: Array) -> None:
        """Set priorities of the entries that are still there from absolute TD errors [batch]; anneal beta."""
        priorities = (self.storage.bring(td_errors).double() + EPSILON) ** self._alpha
        alive = self.storage.sampleable(sample.lanes, sample.entries)
        self._set(sample.lanes, sample.entries, priorities, alive)
        self._largest = torch.maximum(self._largest, priorities.max())
        self.beta = min(1.0, self.beta + self._beta_annealing)

    def cut(self) -> None:
        """End the episodes in progress: the games begin anew."""
        self.storage.cut()
        self._weigh()

    def state(self) -> dict[str, Column]:
        """Everything held, for a checkpoint: what a `PrioritizedReplayBuffer` would give. Waits for the device."""
        storage = self.storage.state()
        used = storage["frames"].shape[1]
        sampler: dict[str, Column] = {
            "priorities": DeviceColumn(self._tree.leaves.view(self.storage.lanes, -1)[:, :used]),
            "largest": self._largest.cpu().numpy()[None],
            "seen": self._seen.cpu().numpy(),
            "weighed": self._weighed.cpu().numpy(),
        }
        return joined(storage, sampler)

    def load_state(self, state: dict[str, NDArray[Any]]) -> bool:
        """Hold what a replay held, on whichever device; False, and nothing done, if that has another shape."""
        storage, sampler = parted(state)
        if not fits(storage, self.storage.lanes, self.storage.capacity, self.storage.frame_shape):
            return False
        self.storage.load_state(storage)
        device, shape = self.storage.device, storage["frames"].shape[:2]
        lanes, slots = (torch.from_numpy(part.ravel()).to(device) for part in np.indices(shape))
        if "priorities" in sampler:
            priorities = torch.from_numpy(sampler["priorities"].ravel()).to(device)
            self._largest = torch.from_numpy(sampler["largest"][0:1].copy()).to(device)[0]
        else:
            newest = self.storage.written[lanes] - 1
            held = self.storage.sampleable(lanes, newest - (newest - slots) % self.storage.capacity)
            priorities = held * self._largest
        self._set(lanes, slots, priorities, torch.ones_like(lanes, dtype=torch.bool))
        self._seen, self._weighed = self.storage.written, self.storage.complete()
        return True

    def close(self) -> None: ...

    def _weigh(self) -> None:
        """Give newly complete entries the largest priority seen; drop those that lost a frame to the write head.

        A step moves a lane's write head by at most 2 entries and completes at most n_step + 1.
        """
        storage = self.storage
        # Overwritten entries, and behind them those whose stacks began in one.
        lost = (self._seen - storage.capacity)[:, None] + self._range(storage.stack + 1)
        fresh = self._weighed[:, None] + self._range(storage.n_step + 1)
        lanes = storage.everyone[:, None]
        is_lost = (lost >= 0) & ~storage.sampleable(lanes, lost)
        is_fresh = (fresh < storage.complete()[:, None]) & storage.sampleable(lanes, fresh)
        entries = torch.cat((lost, fresh), 1)
        priorities = torch.cat((torch.zeros_like(lost), torch.ones_like(fresh)), 1) * self._largest
        valid = torch.cat((is_lost, is_fresh), 1)
        self._set(lanes.expand_as(entries).flatten(), entries.flatten(), priorities.flatten(), valid.flatten())
        self._seen, self._weighed = storage.written, storage.complete()

    def _range(self, length: int) -> Tensor:
        return torch.arange(length, device=self.storage.device)

    def _set(self, lanes: Tensor, entries: Tensor, priorities: Tensor, valid: Tensor) -> None:
        leaves = lanes * self.storage.capacity + entries % self.storage.capacity
        self._tree.set(leaves, priorities, valid)
