"""Replay on a torch device: frames, priorities and draws stay there, and nothing makes the host wait.

`DeviceStorage` keeps what `FrameStorage` keeps, by the same invariants and with the same answers. Its shapes never
depend on its contents: a step of all lanes writes an entry and a final frame in every lane, and a final frame that is
not meant lands in a spare slot behind the ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.buffers.frames import NO_ACTION
from engine.buffers.saved_arrays import Column

_GOES_ON, _TERMINATED, _TRUNCATED = 0, 1, 2
Array = NDArray[Any] | Tensor
"""What is appended may come from the host or be on the device already."""


@dataclass(frozen=True)
class TensorBatch:
    """A `Batch` on a device: the same fields, shapes and dtypes."""

    obs: Tensor
    actions: Tensor
    returns: Tensor
    next_obs: Tensor
    discounts: Tensor
    next_masks: Tensor | None = None


class DeviceColumn:
    """A tensor as `saved.Column`: its parts come to the host when they are asked for."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def __getitem__(self, part: Any, /) -> NDArray[Any]:
        return self._tensor[part].cpu().numpy()


class DeviceStorage:
    """Rings of `capacity` entries for each of `lanes` lanes; arguments as of `FrameStorage`."""

    def __init__(
        self,
        lanes: int,
        capacity: int,
        frame_shape: tuple[int, ...],
        *,
        stack: int,
        n_step: int,
        gamma: float,
        mask_actions: int = 0,
        device: torch.device,
    ) -> None:
        if capacity <= n_step + stack:
            raise ValueError(f"capacity is {capacity}; accepted: more than n_step + stack ({n_step + stack})")
        self.lanes, self.capacity, self.frame_shape = lanes, capacity, frame_shape
        self.stack, self.n_step, self.device = stack, n_step, device
        self._powers = torch.tensor(gamma ** np.arange(n_step + 1), dtype=torch.float64, device=device)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        slots = capacity + 1
        self.frames = zeros(lanes, slots, *frame_shape, dtype=torch.uint8)
        self.actions = zeros(lanes, slots)
        self.rewards = zeros(lanes, slots, dtype=torch.float32)
        self.ends = zeros(lanes, slots, dtype=torch.uint8)
        self.episode_starts = zeros(lanes, slots)
        self.masks = zeros(lanes, slots, mask_actions, dtype=torch.bool) if mask_actions else None
        self.written, self._ended, self._open_start = zeros(lanes), zeros(lanes), zeros(lanes)
        self.everyone = torch.arange(lanes, device=device)
        self._least_written = 0  # what the host knows without asking: steps, final frames not counted

    @property
    def size(self) -> int:
        """Entries held, without the final frames of episodes while the rings are filling."""
        return min(self._least_written, self.capacity) * self.lanes

    @property
    def is_young(self) -> bool:
        """Whether as far as the host knows no window may be complete yet."""
        return self._least_written <= self.n_step

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
        is_cut = self.bring(truncated) & ~self.bring(terminated)
        ends = torch.where(self.bring(terminated), _TERMINATED, torch.where(is_cut, _TRUNCATED, _GOES_ON))
        nothing = torch.zeros_like(self.written)
        self._write(self.written % self.capacity, frames, self.bring(actions), self.bring(rewards), ends, masks)
        last = torch.where(is_cut, (self.written + 1) % self.capacity, self.capacity)
        self._write(last, final_frames, nothing + NO_ACTION, nothing, nothing, final_masks)
        self.written = self.written + 1 + is_cut.long()
        over = ends != _GOES_ON
        self._ended = torch.where(over, self.written - is_cut.long(), self._ended)
        self._open_start = torch.where(over, self.written, self._open_start)
        self._least_written += 1

    def cut(self) -> None:
        """End the episodes in progress; see `FrameStorage.cut`."""
        newest = self.written - 1
        slots, slots_before = newest % self.capacity, (newest - 1) % self.capacity
        everyone, held = self.everyone, self.written > 0
        is_open = held & (self.ends[everyone, slots] == _GOES_ON)
        follows = is_open & (newest > self.episode_starts[everyone, slots])
        self.actions[everyone, slots] = torch.where(is_open, NO_ACTION, self.actions[everyone, slots])
        self.rewards[everyone, slots] = self.rewards[everyone, slots] * ~is_open
        ends = self.ends[everyone, slots_before]
        self.ends[everyone, slots_before] = torch.where(follows, torch.full_like(ends, _TRUNCATED), ends)
        ended = torch.where(follows, newest, torch.where(held & ~is_open, self.written, self._ended))
        self._ended, self._open_start = ended, self.written

    def complete(self) -> Tensor:
        """int64 [lanes]: entries numbered below this have a complete n-step window."""
        return torch.maximum(self.written - self.n_step, self._ended)

    def sampleable(self, lanes: Tensor, entries: Tensor) -> Tensor:
        """bool, as `lanes` and `entries`: which pairs can be sampled now."""
        slots = entries % self.capacity
        oldest = self.written[lanes] - self.capacity
        first_frame = torch.maximum(entries - self.stack + 1, self.episode_starts[lanes, slots])
        return (
            (entries >= oldest.clamp(min=0))
            & (first_frame >= oldest)
            & (entries < self.complete()[lanes])
            & (self.actions[lanes, slots] != NO_ACTION)
        )

    def gather(self, lanes: Tensor, entries: Tensor) -> TensorBatch:
        """Build the n-step transitions of sampleable (lane, entry number) pairs [batch]."""
        steps = torch.arange(self.n_step, device=self.device)
        window = (entries[:, None] + steps) % self.capacity
        ends = self.ends[lanes[:, None], window]
        over = (ends != _GOES_ON).cumsum(1)
        counts = torch.cat((torch.zeros_like(over[:, :1]), over[:, :-1]), 1) == 0  # up to an episode's end
        length = counts.sum(1)
        rewards = self.rewards[lanes[:, None], window].masked_fill(~counts, 0)  # also a NaN behind the end
        terminated = ((ends == _TERMINATED) & counts).any(1)
        # Behind a termination there is nothing to show; the masked next observation repeats the first.
        behind = torch.where(terminated, entries, entries + length)
        return TensorBatch(
            obs=self._stacks(lanes, entries),
            actions=self.actions[lanes, entries % self.capacity],
            returns=(rewards * self._powers[:-1]).sum(1).float(),
            next_obs=self._stacks(lanes, behind),
            discounts=(self._powers[length] * ~terminated).float(),
            next_masks=None if self.masks is None else self.masks[lanes, behind % self.capacity],
        )

    def state(self) -> dict[str, Column]:
        """Everything held, for a checkpoint: what a `FrameStorage` would give. Waits for the device."""
        written = self.written.cpu().numpy()
        used = int(min(written.max(), self.capacity))
        state: dict[str, Column] = {n: DeviceColumn(column[:, :used]) for n, column in self._columns().items()}
        open_start = self._open_start.cpu().numpy()
        return state | {"written": written, "ended": self._ended.cpu().numpy(), "open_start": open_start}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Hold what a storage of the same options held, on whichever device."""
        for name, column in self._columns().items():
            for lane, held in zip(column, state[name], strict=True):  # all at once, the device would hold them twice
                lane[: len(held)] = torch.from_numpy(held)
        self.written, self._ended, self._open_start = (
            torch.from_numpy(state[name].copy()).to(self.device) for name in ("written", "ended", "open_start")
        )
        self._least_written = int(state["written"].min())

    def bring(self, array: Array) -> Tensor:
        """To the device; from pinned memory, so that the host need not wait until it is there."""
        tensor = torch.as_tensor(array)
        if self.device.type == "cuda" and tensor.device.type == "cpu":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _columns(self) -> dict[str, Tensor]:
        names = ("frames", "actions", "rewards", "ends", "episode_starts", "masks")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _stacks(self, lanes: Tensor, entries: Tensor) -> Tensor:
        """Observations [batch, stack, *frame_shape]; before its episode's first frame, one repeats that."""
        back = torch.arange(self.stack - 1, -1, -1, device=self.device)
        starts = self.episode_starts[lanes, entries % self.capacity]
        numbers = torch.maximum(entries[:, None] - back, starts[:, None])
        return self.frames[lanes[:, None], numbers % self.capacity]

    def _write(
        self, slots: Tensor, frames: Array, actions: Tensor, rewards: Tensor, ends: Tensor, masks: Array | None
    ) -> None:
        everyone = self.everyone
        if self.masks is not None and masks is not None:
            self.masks[everyone, slots] = self.bring(masks)
        self.frames[everyone, slots] = self.bring(frames)
        self.actions[everyone, slots] = actions
        self.rewards[everyone, slots] = rewards.float()
        self.ends[everyone, slots] = ends.to(torch.uint8)
        self.episode_starts[everyone, slots] = self._open_start
