"""Frame storage on a torch device.

`DeviceStorage` has the same contents, invariants and results as `FrameStorage`. So that the host never waits for the
device, no shape depends on the contents: every step writes an entry and a final frame in every lane, and lanes that
were not truncated write the latter to a spare slot behind the ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.buffers.device.packed_step import PackedStep
from engine.buffers.frames import ACTION_LIMIT, check_actions, check_frames
from engine.buffers.saved_arrays import Column
from engine.buffers.stored import COLUMNS, CONTINUES, NO_ACTION, TERMINATED, TRUNCATED
from engine.config.game import FrameDtype
from engine.envs.lanes import PlayedStep

Array = NDArray[Any] | Tensor
"""Appended arrays may be on the host or already on the device."""


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
    """A tensor as `saved_arrays.Column`: parts are copied to the host on access."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def __getitem__(self, part: Any, /) -> NDArray[Any]:
        return self._tensor[part].cpu().numpy()


class DeviceStorage:
    """A ring of `capacity` entries for each of `lanes` lanes; arguments as for `FrameStorage`."""

    def __init__(
        self,
        lanes: int,
        capacity: int,
        frame_shape: tuple[int, ...],
        *,
        stack: int,
        n_step: int,
        gamma: float,
        action_limit: int = ACTION_LIMIT,
        mask_actions: int = 0,
        frame_dtype: FrameDtype = "uint8",
        device: torch.device,
    ) -> None:
        if capacity <= n_step + stack:
            raise ValueError(f"capacity must be more than n_step + stack ({n_step + stack}), got {capacity}")
        self.lanes, self.capacity, self.frame_shape = lanes, capacity, frame_shape
        self.frame_dtype = np.dtype(frame_dtype)
        self.stack, self.n_step, self.device = stack, n_step, device
        self.action_limit, self.mask_actions = action_limit, mask_actions
        self._powers = torch.empty(n_step + 1, dtype=torch.float64, device=device)
        self.gamma = gamma

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        slots = capacity + 1
        self.frames = zeros(lanes, slots, *frame_shape, dtype=getattr(torch, frame_dtype))
        self._rows = _in_words(self.frames.view(lanes * slots, -1))
        self.actions = zeros(lanes, slots)
        self.rewards = zeros(lanes, slots, dtype=torch.float32)
        self.ends = zeros(lanes, slots, dtype=torch.uint8)
        self.episode_starts = zeros(lanes, slots)
        self.masks = zeros(lanes, slots, mask_actions, dtype=torch.bool) if mask_actions else None
        self.written, self._ended, self._open_start = zeros(lanes), zeros(lanes), zeros(lanes)
        self.all_lanes = torch.arange(lanes, device=device)
        self._step = PackedStep(lanes, frame_shape, getattr(torch, frame_dtype), mask_actions, device)
        self._min_written = 0  # known without asking the device: steps, not counting final frames
        self._loaded_slots = 0  # of each ring, that a loaded state has filled
        self._min_blank = 0  # the same when episodes were ended: the newest entry of each may be blank since then

    @property
    def gamma(self) -> float:
        """Discount per environment step."""
        return self._gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self._gamma = gamma
        self._powers.copy_(torch.from_numpy(gamma ** np.arange(self.n_step + 1, dtype=np.float64)))

    @property
    def size(self) -> int:
        """Entries stored. Until the rings are full, final frames of truncated episodes are not counted."""
        return min(self._min_written, self.capacity) * self.lanes

    @property
    def slots_used(self) -> int:
        """Slots of each ring that may be in use, as far as the host knows: a step writes at most two."""
        return min(self._loaded_slots + 2 * self._min_written, self.capacity)

    @property
    def may_have_no_window(self) -> bool:
        """Whether it is possible, as far as the host knows, that no n-step window is complete yet."""
        return self._min_written - self._min_blank <= self.n_step

    def append(self, step: PlayedStep) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""
        self.load(step)
        self.write()

    def load(self, step: PlayedStep) -> None:
        """The first half of `append`: copy a step to the device. Raises `ValueError` for frames of another dtype or
        shape, and for actions of another dtype or, in an array, out of range."""
        for name, frames in (("frames", step.frames), ("final_frames", step.final_frames)):
            check_frames(name, frames, (self.lanes, *self.frame_shape), self.frame_dtype)
        if isinstance(step.actions, np.ndarray):
            check_actions(step.actions, self.action_limit)
        elif step.actions.is_floating_point():
            raise ValueError(f"actions must be integers, got {step.actions.dtype}")
        self._step.load(step)
        self._min_written += 1

    def write(self) -> None:
        """The second half of `append`: write the loaded step into the ring. Changes only the contents of tensors."""
        step = self._step
        is_cut = step.truncated & ~step.terminated
        ends = torch.where(step.terminated, TERMINATED, torch.where(is_cut, TRUNCATED, CONTINUES))
        nothing = torch.zeros_like(self.written)
        masks, final_masks = (None, None) if self.masks is None else (step.masks, step.final_masks)
        self._write(self.written % self.capacity, step.frames, step.actions, step.rewards, ends, masks)
        last = torch.where(is_cut, (self.written + 1) % self.capacity, self.capacity)
        self._write(last, step.final_frames, nothing + NO_ACTION, nothing, nothing, final_masks)
        self.written += 1 + is_cut.long()
        over = ends != CONTINUES
        torch.where(over, self.written - is_cut.long(), self._ended, out=self._ended)
        torch.where(over, self.written, self._open_start, out=self._open_start)

    def end_episodes(self) -> None:
        """End the episodes in progress; see `FrameStorage.end_episodes`."""
        newest = self.written - 1
        slots, slots_before = newest % self.capacity, (newest - 1) % self.capacity
        all_lanes, held = self.all_lanes, self.written > 0
        is_open = held & (self.ends[all_lanes, slots] == CONTINUES)
        follows = is_open & (newest > self.episode_starts[all_lanes, slots])
        self.actions[all_lanes, slots] = torch.where(is_open, NO_ACTION, self.actions[all_lanes, slots])
        self.rewards[all_lanes, slots] = self.rewards[all_lanes, slots] * ~is_open
        ends = self.ends[all_lanes, slots_before]
        self.ends[all_lanes, slots_before] = torch.where(follows, torch.full_like(ends, TRUNCATED), ends)
        self._ended.copy_(torch.where(follows, newest, torch.where(held & ~is_open, self.written, self._ended)))
        self._open_start.copy_(self.written)
        self._min_blank = self._min_written

    def complete(self) -> Tensor:
        """int64 [lanes]: entries numbered below this have a complete n-step window."""
        return torch.maximum(self.written - self.n_step, self._ended)

    def sampleable(self, lanes: Tensor, entries: Tensor) -> Tensor:
        """bool [n]: which of the (lane, entry number) pairs [n] can be sampled now."""
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
        """Build the n-step transitions of sampleable (lane, entry number) pairs; both int64 [batch]."""
        steps = torch.arange(self.n_step, device=self.device)
        window = (entries[:, None] + steps) % self.capacity
        ends = self.ends[lanes[:, None], window]
        over = (ends != CONTINUES).cumsum(1)
        counts = torch.cat((torch.zeros_like(over[:, :1]), over[:, :-1]), 1) == 0  # up to an episode's end
        length = counts.sum(1)
        rewards = self.rewards[lanes[:, None], window].masked_fill(~counts, 0)  # removes even a NaN after the end
        terminated = ((ends == TERMINATED) & counts).any(1)
        # There is no frame after a termination; next_obs, which discount 0 masks out, repeats obs.
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
        """The contents for a checkpoint, as from a `FrameStorage`. Waits for the device."""
        written = self.written.cpu().numpy()
        used = int(min(written.max(), self.capacity))
        state: dict[str, Column] = {n: DeviceColumn(column[:, :used]) for n, column in self._columns().items()}
        open_start = self._open_start.cpu().numpy()
        return state | {"written": written, "ended": self._ended.cpu().numpy(), "open_start": open_start}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load the state of a storage with the same options, from any device, which `checked_state` has checked."""
        for name, column in self._columns().items():
            for lane, held in zip(
                column, state[name], strict=True
            ):  # lane by lane: all at once would need the memory twice
                lane[: len(held)] = torch.from_numpy(held)
        for name, tensor in (("written", self.written), ("ended", self._ended), ("open_start", self._open_start)):
            tensor.copy_(torch.from_numpy(state[name]))
        # Steps are what `append` counts; of a ring that has wrapped around, some are overwritten.
        has_wrapped = state["written"].max() > state["actions"].shape[1]
        steps = state["written"] if has_wrapped else (state["actions"] != NO_ACTION).sum(1)
        self._min_written, self._min_blank = int(steps.min()), 0
        self._loaded_slots = state["actions"].shape[1]

    def to_device(self, array: Array) -> Tensor:
        """Copy an array to the device. With CUDA, from pinned memory, so that the host does not wait for the copy."""
        tensor = torch.as_tensor(array)
        if self.device.type == "cuda" and tensor.device.type == "cpu":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _columns(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}

    def _stacks(self, lanes: Tensor, entries: Tensor) -> Tensor:
        """Observations [batch, stack, *frame_shape]; the first frame of an episode is repeated before it."""
        back = torch.arange(self.stack - 1, -1, -1, device=self.device)
        starts = self.episode_starts[lanes, entries % self.capacity]
        numbers = torch.maximum(entries[:, None] - back, starts[:, None])
        rows = lanes[:, None] * (self.capacity + 1) + numbers % self.capacity
        found = self._rows.index_select(0, rows.flatten()).view(self.frames.dtype)
        return found.view(len(lanes), self.stack, *self.frame_shape)

    def _write(
        self, slots: Tensor, frames: Tensor, actions: Tensor, rewards: Tensor, ends: Tensor, masks: Tensor | None
    ) -> None:
        all_lanes = self.all_lanes
        if self.masks is not None and masks is not None:
            self.masks[all_lanes, slots] = masks
        self._rows.index_copy_(0, all_lanes * (self.capacity + 1) + slots, _in_words(frames.flatten(1)))
        self.actions[all_lanes, slots] = actions
        self.rewards[all_lanes, slots] = rewards.float()
        self.ends[all_lanes, slots] = ends.to(torch.uint8)
        self.episode_starts[all_lanes, slots] = self._open_start


def _in_words(rows: Tensor) -> Tensor:
    """Rows [n, items] viewed as words [n, words] as long as a row's length allows: copying them takes a fifth of the
    time that single bytes take."""
    size = rows.shape[1] * rows.itemsize
    for dtype in (torch.int64, torch.int32, torch.int16):
        if size % dtype.itemsize == 0 and dtype.itemsize > rows.itemsize:
            return rows.view(dtype)
    return rows
