"""Prioritized replay on a torch device.

It gives the same results as `PrioritizedReplayBuffer`. There is no separate uniform replay: alpha 0 and beta 0 make it
uniform.
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
from engine.buffers.frames import check_td_errors
from engine.buffers.replay import Replay
from engine.buffers.sampling import EPSILON, NothingToSample, Survey, places, survey
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import Column, ReplayShape
from engine.runtime.devices import GraphedCall


@dataclass(frozen=True)
class TensorSample:
    """A `Sample` on a device."""

    lanes: Tensor  # int64 [batch]
    entries: Tensor  # int64 [batch]
    weights: Tensor  # float32 [batch]
    scales: Tensor  # float64 [batch]


class DeviceReplayBuffer(Replay):
    """Prioritized replay on `device`; the other arguments are those of `PrioritizedReplayBuffer`."""

    storage: DeviceStorage

    def __init__(
        self,
        shape: ReplayShape,
        *,
        gamma: float = 0.99,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_annealing: float = 1e-5,
        device: torch.device,
    ) -> None:
        self.storage, lanes = DeviceStorage(shape, gamma=gamma, device=device), shape.lanes
        self._alpha, self._beta_annealing = alpha, beta_annealing
        self._beta = beta
        self._beta_there = torch.full((), beta, dtype=torch.float64, device=device)  # the same value
        self._tree = DeviceSumTree(lanes * shape.capacity, device)
        self._max_priority = torch.ones((), dtype=torch.float64, device=device)  # p^alpha
        self._seen = torch.zeros(lanes, dtype=torch.int64, device=device)  # entries written at the last append
        self._prioritized = torch.zeros(lanes, dtype=torch.int64, device=device)  # entries below have a priority
        self._write = GraphedCall(self._write_step, device)

    @property
    def beta(self) -> float:
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = beta
        self._beta_there.fill_(beta)

    def append(self, step: PlayedStep) -> None:
        self.storage.load(step)
        self._write()
        if step.failed is not None and step.failed.any():
            self.end_episodes(step.failed)

    def _write_step(self) -> None:
        self.storage.write()
        self._update_priorities()

    def sample(
        self, batch_size: int, random: np.random.Generator | torch.Generator
    ) -> tuple[TensorBatch, TensorSample]:
        """Draw a batch; also return the drawn entries with their importance weights [batch].

        Numbers of a NumPy generator are copied to the device; a torch generator must be on the device. Raises
        `NothingToSample` if no entry can be sampled yet.
        """
        self.check_not_empty()
        if isinstance(random, torch.Generator):
            jitter = torch.rand(batch_size, generator=random, dtype=torch.float64, device=self.storage.device)
        else:
            jitter = self.storage.to_device(random.random(batch_size))
        return self.draw(jitter)

    def check_not_empty(self) -> None:
        """Raise `NothingToSample` if no entry can be sampled yet. Waits for the device only before the first window."""
        if self.storage.may_have_no_window and not int(self._tree.count):
            raise NothingToSample

    def draw(self, jitter: Tensor) -> tuple[TensorBatch, TensorSample]:
        """`sample` with random numbers float64 [batch] in [0, 1), from a replay that is not empty."""
        storage, tree, batch_size = self.storage, self._tree, len(jitter)
        strata = (torch.arange(batch_size, device=storage.device) + jitter) / batch_size
        leaves = tree.find(strata * tree.total)
        lanes, slots = leaves // storage.capacity, leaves % storage.capacity
        newest = storage.written[lanes] - 1
        entries = newest - (newest - slots) % storage.capacity
        weights = (tree.count * tree[leaves] / tree.total) ** -self._beta_there
        largest = weights.max()
        sample = TensorSample(lanes, entries, (weights / largest).float(), largest.expand(batch_size))
        return storage.gather(lanes, entries), sample

    def update_priorities(self, sample: TensorSample, td_errors: Array) -> None:
        if isinstance(td_errors, np.ndarray):
            check_td_errors(td_errors)
        self.set_priorities(sample, self.storage.to_device(td_errors))
        self.count_update()

    def set_priorities(self, sample: TensorSample, td_errors: Tensor) -> None:
        """Do the part of `update_priorities` on the device. Changes only the contents of tensors."""
        usable = td_errors.isfinite() & (td_errors >= 0)
        priorities = (torch.where(usable, td_errors, 0.0).double() + EPSILON) ** self._alpha
        alive = self.storage.sampleable(sample.lanes, sample.entries)
        self._set(sample.lanes, sample.entries, priorities, alive & usable)
        torch.maximum(self._max_priority, priorities.max(), out=self._max_priority)
        self._beta_there.add_(self._beta_annealing).clamp_(max=1.0)

    def count_update(self) -> None:
        """Do the part of `update_priorities` on the host."""
        self._beta = min(1.0, self._beta + self._beta_annealing)

    def end_episodes(self, which: NDArray[np.bool_] | None = None) -> None:
        self.storage.end_episodes(which)
        self._update_priorities()

    def survey(self) -> Survey:
        storage = self.storage
        lanes, slots = places(storage.lanes, storage.slots_used)
        found = self._tree[storage.to_device(lanes * storage.capacity + slots)]
        written, chances = np.split(torch.cat((storage.written.double(), found)).cpu().numpy(), [storage.lanes])
        return survey(written.astype(np.int64), storage.capacity, lanes, slots, chances, self._alpha)

    def sampler_state(self) -> dict[str, Column]:
        used = min(int(self.storage.written.max()), self.storage.capacity)
        return {
            "priorities": DeviceColumn(self._tree.leaves.view(self.storage.lanes, -1)[:, :used]),
            "largest": self._max_priority.cpu().numpy()[None],
            "seen": self._seen.cpu().numpy(),
            "weighed": self._prioritized.cpu().numpy(),
        }

    def load_sampler_state(self, state: dict[str, NDArray[Any]]) -> None:
        storage, device = self.storage, self.storage.device
        lanes, slots = (
            torch.from_numpy(part.ravel()).to(device) for part in np.indices((storage.lanes, storage.loaded_slots))
        )
        if "priorities" in state:
            priorities = torch.from_numpy(state["priorities"].ravel()).to(device)
            self._max_priority.fill_(float(state["largest"][0]))
        else:
            newest = storage.written[lanes] - 1
            held = storage.sampleable(lanes, newest - (newest - slots) % storage.capacity)
            priorities = held * self._max_priority
        self._set(lanes, slots, priorities, torch.ones_like(lanes, dtype=torch.bool))
        self._mark_all_seen()

    def _update_priorities(self) -> None:
        """Give newly complete entries the largest priority seen; set it to 0 for those that lost a frame of the stack.

        A step moves a lane's write head by at most 2 entries and completes at most n_step + 1.
        """
        storage = self.storage
        # Overwritten entries, then those whose stacks began in one.
        lost = (self._seen - storage.capacity)[:, None] + self._range(storage.stack + 1)
        fresh = self._prioritized[:, None] + self._range(storage.n_step + 1)
        lanes = storage.all_lanes[:, None]
        is_lost = (lost >= 0) & ~storage.sampleable(lanes, lost)
        is_fresh = (fresh < storage.complete()[:, None]) & storage.sampleable(lanes, fresh)
        entries = torch.cat((lost, fresh), 1)
        priorities = torch.cat((torch.zeros_like(lost), torch.ones_like(fresh)), 1) * self._max_priority
        valid = torch.cat((is_lost, is_fresh), 1)
        self._set(lanes.expand_as(entries).flatten(), entries.flatten(), priorities.flatten(), valid.flatten())
        self._mark_all_seen()

    def _mark_all_seen(self) -> None:
        self._seen.copy_(self.storage.written)
        self._prioritized.copy_(self.storage.complete())

    def _range(self, length: int) -> Tensor:
        return torch.arange(length, device=self.storage.device)

    def _set(self, lanes: Tensor, entries: Tensor, priorities: Tensor, valid: Tensor) -> None:
        leaves = lanes * self.storage.capacity + entries % self.storage.capacity
        self._tree.set(leaves, priorities, valid)
