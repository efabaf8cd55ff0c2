"""Frame storage on a torch device.

`DeviceStorage` has the same contents, invariants and results as `FrameStorage`. So that the host never waits for the
device, no shape depends on the contents: every step writes an entry and a final frame in every lane, and lanes that
were not truncated write the latter to a spare slot behind the ring.

A step from the host is packed into one block of pinned memory and reaches the device in a single copy. The tensors lie
at the same addresses for every step, so that a CUDA graph can read them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.buffers.frames import check_actions, check_frames
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import CONTINUES, NO_ACTION, TERMINATED, TRUNCATED, Column, ReplayShape

_ITEM = 8
"""Bytes to which every field is aligned."""


class PackedStep:
    """The fields of a `PlayedStep` as tensors on `device`; later steps overwrite them."""

    frames: Tensor
    final_frames: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    masks: Tensor
    final_masks: Tensor

    def __init__(self, shape: ReplayShape, device: torch.device) -> None:
        lanes, mask_actions = shape.lanes, shape.mask_actions
        frames = ((lanes, *shape.frame_shape), getattr(torch, shape.frame_dtype))
        self._fields: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "actions": ((lanes,), torch.int64),
            "rewards": ((lanes,), torch.float32),
            "terminated": ((lanes,), torch.bool),
            "truncated": ((lanes,), torch.bool),
            "masks": ((lanes, mask_actions), torch.bool),
            "final_masks": ((lanes, mask_actions), torch.bool),
            "frames": frames,  # last, because they may be on the device already
            "final_frames": frames,
        }
        if not mask_actions:
            del self._fields["masks"], self._fields["final_masks"]
        size = sum(_padded(shape, dtype) for shape, dtype in self._fields.values())
        self._block = torch.zeros(size, dtype=torch.uint8, device=device)
        for name, tensor in self._views(self._block).items():
            setattr(self, name, tensor)

    def load(self, step: PlayedStep) -> None:
        """Copy a step, whose arrays may lie on the host or the device."""
        arrays = {name: getattr(step, name) for name in self._fields}
        there = {name: array for name, array in arrays.items() if isinstance(array, Tensor)}
        here = {name: array for name, array in arrays.items() if name not in there}
        if here:
            self._load_from_host(here)
        for name, tensor in there.items():
            getattr(self, name).copy_(tensor, non_blocking=True)

    def _load_from_host(self, arrays: dict[str, Any]) -> None:
        # PyTorch reuses pinned memory, but not before the copies from it are done.
        block = torch.empty(len(self._block), dtype=torch.uint8, pin_memory=self._block.device.type == "cuda")
        end = 0
        for name, tensor in self._views(block).items():
            if name in arrays:
                given = True if arrays[name] is None else arrays[name]  # without masks, all actions are legal
                np.copyto(tensor.numpy(), given, casting="same_kind")
                end = int(tensor.storage_offset()) * tensor.itemsize + tensor.nbytes
        self._block[:end].copy_(block[:end], non_blocking=True)  # fields in between that are on the device come later

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        views, start = {}, 0
        for name, (shape, dtype) in self._fields.items():
            size = math.prod(shape) * dtype.itemsize
            views[name] = block[start : start + size].view(dtype).view(shape)
            start += _padded(shape, dtype)
        return views


def _padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes of a field, with those that align the next one."""
    return -(-math.prod(shape) * dtype.itemsize // _ITEM) * _ITEM


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
    """A tensor as a `Column`: parts are copied to the host on access."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.shape = tuple(tensor.shape)
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def __getitem__(self, part: Any, /) -> NDArray[Any]:
        return self._tensor[part].cpu().numpy()


class DeviceStorage:
    """A ring of entries for each lane; arguments as for `FrameStorage`."""

    def __init__(self, shape: ReplayShape, *, gamma: float = 0.99, device: torch.device) -> None:
        self.shape, self.lanes, self.capacity = shape, shape.lanes, shape.capacity
        self.stack, self.n_step, self.device = shape.stack, shape.n_step, device
        self._powers = torch.empty(self.n_step + 1, dtype=torch.float64, device=device)
        self.gamma = gamma
        slots = self.capacity + 1
        self._arrays = {
            name: torch.zeros(stored.shape, dtype=getattr(torch, stored.dtypes[-1]), device=device)
            for name, stored in shape.storage(slots).items()
        }
        self.frames, self.masks = self._arrays["frames"], self._arrays.get("masks")
        self._rows = _in_words(self.frames.view(self.lanes * slots, -1))
        self.actions, self.rewards = self._arrays["actions"], self._arrays["rewards"]
        self.ends, self.episode_starts = self._arrays["ends"], self._arrays["episode_starts"]
        self.written, self._ended = self._arrays["written"], self._arrays["ended"]
        self._open_start = self._arrays["open_start"]
        self.all_lanes = torch.arange(self.lanes, device=device)
        self._step = PackedStep(shape, device)
        self._min_written = 0  # known without asking the device: steps, not counting final frames
        self.loaded_slots = 0
        """Of each ring, that a loaded state has filled."""
        self._min_blank = 0  # the same when all episodes were ended last, and steps since then in which one failed

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
    def room(self) -> int:
        """Entries that fit before one is overwritten: a step is one of every lane."""
        return self.capacity * self.lanes - self.size

    @property
    def slots_used(self) -> int:
        """Slots of each ring that may be in use, as far as the host knows: a step writes at most two."""
        return min(self.loaded_slots + 2 * self._min_written, self.capacity)

    @property
    def may_have_no_window(self) -> bool:
        """Return whether it is possible, as far as the host knows, that no n-step window is complete yet."""
        return self._min_written - self._min_blank <= self.n_step

    def append(self, step: PlayedStep) -> None:
        """Add one step of every lane; see `FrameStorage.append`."""
        self.load(step)
        self.write()
        if step.failed is not None and step.failed.any():
            self.end_episodes(step.failed)

    def load(self, step: PlayedStep) -> None:
        """The first half of `append`: copy a step to the device. Raises `ValueError` for frames of another dtype or
        shape, and for actions of another dtype or, in an array, out of range."""
        for name, frames in (("frames", step.frames), ("final_frames", step.final_frames)):
            check_frames(name, frames, self.shape)
        if isinstance(step.actions, np.ndarray):
            check_actions(step.actions, self.shape.action_limit)
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

    def end_episodes(self, which: NDArray[np.bool_] | None = None) -> None:
        """End the episodes in progress; see `FrameStorage.end_episodes`."""
        newest = self.written - 1
        slots, slots_before = newest % self.capacity, (newest - 1) % self.capacity
        all_lanes = self.all_lanes
        ends_now = torch.ones_like(all_lanes, dtype=torch.bool) if which is None else self.to_device(which)
        held = ends_now & (self.written > 0)
        is_open = held & (self.ends[all_lanes, slots] == CONTINUES)
        follows = is_open & (newest > self.episode_starts[all_lanes, slots])
        self.actions[all_lanes, slots] = torch.where(is_open, NO_ACTION, self.actions[all_lanes, slots])
        self.rewards[all_lanes, slots] = self.rewards[all_lanes, slots] * ~is_open
        ends = self.ends[all_lanes, slots_before]
        self.ends[all_lanes, slots_before] = torch.where(follows, torch.full_like(ends, TRUNCATED), ends)
        self._ended.copy_(torch.where(follows, newest, torch.where(held & ~is_open, self.written, self._ended)))
        torch.where(ends_now, self.written, self._open_start, out=self._open_start)
        self._min_blank = self._min_written if which is None else self._min_blank + 1

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
        used = min(int(self.written.max()), self.capacity)
        return {
            name: DeviceColumn(tensor[:, :used]) if tensor.ndim > 1 else tensor.cpu().numpy()
            for name, tensor in self._arrays.items()
        }

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load the state of a storage of the same shape, from any device, which `checked_state` has checked."""
        for name, tensor in self._arrays.items():
            if tensor.ndim == 1:
                tensor.copy_(torch.from_numpy(state[name]))
                continue
            for lane, held in zip(tensor, state[name], strict=True):  # all at once would need the memory twice
                lane[: len(held)] = torch.from_numpy(held)
        # Steps are what `append` counts; of a ring that has wrapped around, some are overwritten.
        has_wrapped = state["written"].max() > state["actions"].shape[1]
        steps = state["written"] if has_wrapped else (state["actions"] != NO_ACTION).sum(1)
        self._min_written, self._min_blank = int(steps.min()), 0
        self.loaded_slots = state["actions"].shape[1]

    def to_device(self, array: Array) -> Tensor:
        """Copy an array to the device. With CUDA, from pinned memory, so that the host does not wait for the copy."""
        tensor = torch.as_tensor(array)
        if self.device.type == "cuda" and tensor.device.type == "cpu":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _stacks(self, lanes: Tensor, entries: Tensor) -> Tensor:
        """Observations [batch, stack, *frame_shape]; the first frame of an episode is repeated before it."""
        back = torch.arange(self.stack - 1, -1, -1, device=self.device)
        starts = self.episode_starts[lanes, entries % self.capacity]
        numbers = torch.maximum(entries[:, None] - back, starts[:, None])
        rows = lanes[:, None] * (self.capacity + 1) + numbers % self.capacity
        found = self._rows.index_select(0, rows.flatten()).view(self.frames.dtype)
        return found.view(len(lanes), self.stack, *self.shape.frame_shape)

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
