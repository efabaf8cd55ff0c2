"""Replay storage that stores every frame once, in one ring per lane.

Invariants. An entry is a frame with the action taken and its outcome (reward, end of the episode). The entries of a
lane are numbered from 0 without gaps; entry t is in slot t % capacity. The final frame of a truncated episode follows
as an entry without an action (`NO_ACTION`), so that its value can be bootstrapped; after a termination nothing follows.
A stack never reaches before its episode; the first frame fills the gap. An entry can be sampled if
the oldest frame of its stack is still in the ring and its n-step window is complete: n entries follow it, or its
episode has ended. So no sample crosses the border of an episode or the write head.

An append first claims its slots, then fills them, then counts them as written, with a `fence` between. If it is
interrupted by a kill, or observed from another process, a half-written slot is valid neither as the old nor as the new
entry.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.buffers.memory import HostMemory, Layout, MappedMemory
from engine.console.compiler.kernels import helper, kernel, prefetch
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import CONTINUES, NO_ACTION, TERMINATED, TRUNCATED, ReplayShape, check_entries
from engine.runtime.processes import fence
from engine.runtime.stored_arrays import LARGEST_FLOAT, check_numbers

NO_PRIORITY = np.float32(-1)
_RECORD = np.dtype(  # 16 bytes, so that a window of entries fits in one or two cache lines
    [
        ("episode_starts", np.int64),  # entry number of the episode's first frame
        ("rewards", np.float32),
        ("actions", np.int16),
        ("ends", np.uint8),
    ],
    align=True,
)
_FIELDS, _RECORD_BYTES = _RECORD.names or (), _RECORD.itemsize
# Columns of the fields, where a record is seen as a row of elements of the field's type
_START, _REWARD, _ACTION, _END = (place // dtype.itemsize for dtype, place, *_ in (_RECORD.fields or {}).values())
_PREFETCH_DISTANCE = 16  # transitions between the prefetch of one and its assembly


@dataclass(frozen=True)
class Batch:
    """n-step transitions: target = returns + discounts * value(next_obs).

    `discounts` is gamma^m for a window of m steps, and 0 if the episode terminated in it.
    """

    obs: NDArray[Any]  # [batch, stack, *frame_shape], as the frames
    actions: NDArray[np.int64]  # [batch]
    returns: NDArray[np.float32]  # [batch], discounted sum of the window's rewards
    next_obs: NDArray[Any]  # [batch, stack, *frame_shape]
    discounts: NDArray[np.float32]  # [batch]
    next_masks: NDArray[np.bool_] | None = None  # [batch, actions], legal actions; None if all are always legal


@dataclass(frozen=True)
class InitialPriorities:
    """Absolute TD errors of the entries whose n-step windows the appended step completes."""

    lanes: NDArray[np.int64]  # [n]
    ages: NDArray[np.int64]  # [n], steps from the entry to the appended one
    td_errors: NDArray[np.float32]  # [n]


class FrameStorage:
    """A ring of entries for each lane.

    Args:
        shape: its rings.
        gamma: discount per environment step.
        priorities: whether initial priorities are passed to `append` and stored. Files always store priorities.
        memory: where the arrays are allocated (default: in this process). Existing contents are kept, unless they are
            damaged; see `MappedMemory`.
    """

    def __init__(
        self, shape: ReplayShape, *, gamma: float = 0.99, priorities: bool = False, memory: HostMemory | None = None
    ) -> None:
        self.shape, self.lanes, self.capacity = shape, shape.lanes, shape.capacity
        self.stack, self.n_step = shape.stack, shape.n_step
        self._powers = np.empty(shape.n_step + 1)
        self.gamma = gamma
        self.memory = HostMemory() if memory is None else memory
        stored, slots = shape.storage(self.capacity), (self.lanes, self.capacity)
        layout: Layout = {
            **{name: (stored[name].shape, np.dtype(stored[name].dtypes[0])) for name in stored if name not in _FIELDS},
            "records": (slots, _RECORD),
            "claimed": ((self.lanes,), np.int64),  # entries written or being written
            # Absolute TD errors; NO_PRIORITY if an episode was cut off before its actor could tell them.
            **({"priorities": (slots, np.float32)} if priorities or self.memory.on_disk else {}),
        }
        arrays = self.memory.arrays(layout)
        self.frames, self.masks, self._records = arrays["frames"], arrays.get("masks"), arrays["records"]
        self.actions, self.rewards = self._records["actions"], self._records["rewards"]
        self.ends, self.episode_starts = self._records["ends"], self._records["episode_starts"]
        self.priorities = arrays.get("priorities")
        self.written, self._claimed = arrays["written"], arrays["claimed"]
        self.ended, self.open_start = arrays["ended"], arrays["open_start"]
        if isinstance(self.memory, MappedMemory):
            self._check_contents(self.memory, arrays)
            self.end_episodes()

    @property
    def size(self) -> int:
        """Entries stored."""
        return int(np.minimum(self.written, self.capacity).sum())

    @property
    def room(self) -> int:
        """Entries that fit before one is overwritten, in the lanes that have begun, or in all while none has."""
        begun = int(np.count_nonzero(self.written)) or self.lanes
        return begun * self.capacity - self.size

    def append(self, step: PlayedStep, priorities: InitialPriorities | None = None) -> None:
        """Add one step of every lane: the frame acted on, the action and its outcome.

        The first axis of all arrays is the lane. `final_frames` is read only where `truncated` is set and `terminated`
        is not; where `failed` is, the episode ends as by `end_episodes`. If masks are stored, `masks` belong to
        `frames` and `final_masks` to `final_frames`; if priorities are, `priorities` are those of the entries whose
        windows this step completes.

        Raises `ValueError` for frames of another dtype or shape, for actions out of range, and for priorities that are
        not finite or negative.
        """
        check_frames("frames", step.frames, self.shape)
        check_actions(step.actions, self.shape.action_limit)
        if priorities is not None:
            check_td_errors(priorities.td_errors)
        ends = np.where(step.terminated, TERMINATED, np.where(step.truncated, TRUNCATED, CONTINUES)).astype(np.uint8)
        cut = np.flatnonzero(ends == TRUNCATED)
        if cut.size:
            check_frames("final_frames", step.final_frames, self.shape)
        after = self.written + 1
        after[cut] += 1
        self._claimed[:] = np.maximum(self._claimed, after)
        fence()
        self._write(np.arange(self.lanes), self.written, step.frames, step.actions, step.rewards, ends, step.masks)
        if cut.size:
            none, zero = np.full(cut.size, NO_ACTION, np.int64), np.zeros(cut.size, np.float32)
            last_masks = None if step.final_masks is None else step.final_masks[cut]
            goes_on = np.full(cut.size, CONTINUES, np.uint8)
            self._write(cut, self.written[cut] + 1, step.final_frames[cut], none, zero, goes_on, last_masks)
        if self.priorities is not None and priorities is not None:
            slots = (self.written[priorities.lanes] - priorities.ages) % self.capacity
            self.priorities[priorities.lanes, slots] = priorities.td_errors
        fence()
        self.written[:] = after
        fence()
        over = ends != CONTINUES
        self.ended[over] = after[over] - (ends[over] == TRUNCATED)
        self.open_start[over] = after[over]
        if step.failed is not None and step.failed.any():
            self.end_episodes(step.failed)

    @property
    def gamma(self) -> float:
        """Discount per environment step."""
        return self._gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self._gamma = gamma
        self._powers[:] = gamma ** np.arange(self.n_step + 1, dtype=np.float64)

    def part(self, first: int, lanes: int) -> FrameStorage:
        """A view of `lanes` lanes starting at `first`, for one of several processes that append."""
        part = copy.copy(self)
        part.shape, part.lanes = dataclasses.replace(self.shape, lanes=lanes), lanes
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray) and name != "_powers":
                setattr(part, name, array[first : first + lanes])
        return part

    def end_episodes(self, which: NDArray[np.bool_] | None = None) -> None:
        """End the episodes in progress, of all lanes or of those that `which` [lanes] says; the next append begins new
        ones.

        The newest frame of an open episode becomes the final frame of a truncation, since the outcome of its action is
        unknown. Idempotent, even after an interrupted call.
        """
        lanes = np.flatnonzero(self.written > 0 if which is None else which & (self.written > 0))
        newest = self.written[lanes] - 1
        slots, slots_before = newest % self.capacity, (newest - 1) % self.capacity
        is_open = self.ends[lanes, slots] == CONTINUES  # or a final frame already
        follows = is_open & (newest > self.episode_starts[lanes, slots])
        self.actions[lanes[is_open], slots[is_open]] = NO_ACTION
        self.rewards[lanes[is_open], slots[is_open]] = 0
        self.ends[lanes[follows], slots_before[follows]] = TRUNCATED
        fence()
        self.ended[lanes[follows]] = newest[follows]
        self.ended[lanes[~is_open]] = newest[~is_open] + 1
        self.open_start[lanes] = self.written[lanes]

    def complete(self) -> NDArray[np.int64]:
        """int64 [lanes]: entries numbered below this have a complete n-step window. What is read after this is at least
        as new."""
        complete = np.maximum(self.written - self.n_step, self.ended)
        fence()
        return complete

    def sampleable(self, lanes: NDArray[np.int64], entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool [n]: which of the (lane, entry number) pairs [n] can be sampled now."""
        slots = entries % self.capacity
        complete = self.complete()
        # Read the entries first, then check that they were still valid: another process may be overwriting them.
        first_frame = np.maximum(entries - self.stack + 1, self.episode_starts[lanes, slots])
        is_action = self.actions[lanes, slots] != NO_ACTION
        fence()
        oldest = self._claimed[lanes] - self.capacity
        return (entries >= np.maximum(oldest, 0)) & (first_frame >= oldest) & (entries < complete[lanes]) & is_action

    def gather(self, lanes: NDArray[np.int64], entries: NDArray[np.int64], into: Batch | None = None) -> Batch:
        """Build the n-step transitions of sampleable (lane, entry number) pairs; both int64 [batch].

        `into` is a batch of that size whose memory is reused: allocating it costs several times as much as copying.
        """
        size, dtype = lanes.size, self.frames.dtype
        row = math.prod(self.shape.frame_shape) * dtype.itemsize
        shape = (size, self.stack, *self.shape.frame_shape)
        batch = Batch(
            obs=np.empty(shape, dtype) if into is None else into.obs,
            actions=np.empty(size, np.int64),
            returns=np.empty(size, np.float32),
            next_obs=np.empty(shape, dtype) if into is None else into.next_obs,
            discounts=np.empty(size, np.float32),
        )
        next_entries = np.empty(size, np.int64)
        _transitions(
            self.frames.reshape(-1).view(np.uint8).reshape(-1, row),
            self._records.view(np.uint8).reshape(-1, _RECORD_BYTES), self.capacity,
            self._powers, lanes, entries, entries % self.capacity,
            batch.obs.reshape(-1).view(np.uint8).reshape(size, self.stack, row), batch.actions, batch.returns,
            batch.next_obs.reshape(-1).view(np.uint8).reshape(size, self.stack, row), batch.discounts, next_entries,
        )  # fmt: skip
        if self.masks is None:
            return batch
        return dataclasses.replace(batch, next_masks=self.masks[lanes, next_entries % self.capacity])

    def prefetch(self, lanes: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Start reading the frames of transitions that will be gathered soon, if they are on disk."""
        rows = lanes * self.capacity + (entries - self.stack + 1) % self.capacity
        self.memory.prefetch("frames", rows, self.stack + self.n_step)

    def keep_priorities(
        self, lanes: NDArray[np.int64], entries: NDArray[np.int64], td_errors: NDArray[np.float32]
    ) -> None:
        """Store absolute TD errors [batch] of entries that have not been overwritten, in files: a process that opens
        them later goes on with these."""
        if self.memory.on_disk and self.priorities is not None:
            held = entries >= self.written[lanes] - self.capacity
            self.priorities[lanes[held], entries[held] % self.capacity] = td_errors[held]

    def state(self) -> dict[str, NDArray[Any]]:
        """The contents for a checkpoint: views of the arrays, not copies."""
        return self._contents(int(min(self.written.max(), self.capacity)))

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load the state of a storage of the same shape, which `checked_state` has checked."""
        counts = (self.written, self._claimed, self.ended, self.open_start)
        for count in counts:
            count[:] = 0  # so that files are those of an empty replay if this is interrupted
        fence()
        for name, column in self._contents(state["actions"].shape[1]).items():
            if column.ndim > 1:
                column[:] = state[name]
        if self.priorities is not None:
            self.priorities[:] = NO_PRIORITY
        fence()
        for count, name in zip(counts, ("written", "written", "ended", "open_start"), strict=True):
            count[:] = state[name]

    def _check_contents(self, memory: MappedMemory, arrays: dict[str, NDArray[Any]]) -> None:
        """Check what an earlier process has left in files; discard it if it is damaged."""
        used = int(np.clip(self._claimed.max(), 0, self.capacity))  # of a new replay nothing is read
        try:
            check_entries(self._contents(used), self.shape, used, self._claimed)
            if self.priorities is not None:
                told = self.priorities[:, :used]
                check_numbers("priorities", told[told != NO_PRIORITY], 0, LARGEST_FLOAT)
        except ValueError as error:
            memory.discard(f"that is damaged ({error})")
            for name, array in arrays.items():
                if name != "frames" or array.dtype.kind == "f":  # screens may be many
                    array[...] = np.zeros((), array.dtype)

    def _contents(self, used: int) -> dict[str, NDArray[Any]]:
        """The arrays of `ReplayShape.storage`: views."""
        arrays = {name: getattr(self, name) for name in self.shape.storage(used)}
        return {name: array[:, :used] if array.ndim > 1 else array for name, array in arrays.items()}

    def _write(
        self,
        lanes: NDArray[np.intp],
        entries: NDArray[np.int64],
        frames: NDArray[Any],
        actions: NDArray[np.int64],
        rewards: NDArray[np.float32],
        ends: NDArray[np.uint8],
        masks: NDArray[np.bool_] | None,
    ) -> None:
        slots = entries % self.capacity
        if self.priorities is not None:
            self.priorities[lanes, slots] = NO_PRIORITY
        if self.masks is not None:
            self.masks[lanes, slots] = True if masks is None else masks
        self.frames[lanes, slots] = frames
        self.actions[lanes, slots] = actions
        self.rewards[lanes, slots] = rewards
        self.ends[lanes, slots] = ends
        self.episode_starts[lanes, slots] = self.open_start[lanes]


def check_frames(name: str, frames: Any, shape: ReplayShape) -> None:
    """Raise `ValueError` unless frames, an array or a tensor, are those of all lanes: a conversion to uint8 would make
    all of floats between 0 and 1 zero."""
    dtype, wanted = shape.frame_dtype, (shape.lanes, *shape.frame_shape)
    if str(frames.dtype).removeprefix("torch.") != dtype or tuple(frames.shape) != wanted:
        raise ValueError(f"{name} must be {dtype} {list(wanted)}, got {frames.dtype} {list(frames.shape)}")


def check_actions(actions: NDArray[Any], limit: int) -> None:
    """Raise `ValueError` unless actions are whole numbers from 0 to below `limit`."""
    if actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be integers, got {actions.dtype}")
    check_numbers("actions", actions, 0, limit - 1)


def check_td_errors(td_errors: NDArray[np.floating[Any]]) -> None:
    """Raise `ValueError` unless TD errors are finite and not negative: after a single other one, no importance weight
    of any later sample would be a number."""
    wrong = td_errors[~(np.isfinite(td_errors) & (td_errors >= 0))]
    if wrong.size:
        raise ValueError(f"td_errors must be finite and at least 0, got {wrong[0]}")


@kernel(
    "uint8[2], uint8[2], int64, float64[1], int64[1], int64[1], int64[1], "
    "uint8[3], int64[1], float32[1], uint8[3], float32[1], int64[1]"
)
def _transitions(
    frames: Any, records: Any, capacity: Any, powers: Any, lanes: Any, entries: Any, slots: Any,
    obs: Any, actions: Any, returns: Any, next_obs: Any, discounts: Any, next_entries: Any,
) -> None:  # fmt: skip
    """Fill a batch, and `next_entries` [batch] with the entries that follow its windows.

    frames: their bytes, [lanes * capacity, bytes]. records: their bytes, [lanes * capacity, _RECORD_BYTES]. powers:
    float64 [n_step + 1], gamma^k. slots: of the entries, [batch].
    """
    size, n_step, pixels = lanes.size, powers.size - 1, frames.reshape(-1)
    starts, rewards, taken = records.view(np.int64), records.view(np.float32), records.view(np.int16)
    record_bytes = records.reshape(-1)
    for ahead in range(size + _PREFETCH_DISTANCE):
        if ahead < size:
            place = lanes[ahead] * capacity + slots[ahead]
            for last in range(2):  # the first and the last entry of a window
                row = place + last * n_step
                prefetch(record_bytes, row * _RECORD_BYTES)
                prefetch(pixels, row * frames.shape[1])
        i = ahead - _PREFETCH_DISTANCE
        if i < 0:
            continue
        begin, slot = lanes[i] * capacity, slots[i]
        total, step, end = 0.0, 0, CONTINUES
        actions[i] = taken[begin + slot, _ACTION]
        reach = entries[i] - starts[begin + slot, _START]
        _copy_stack(frames, begin, capacity, slot, reach, obs, i)
        while step < n_step and end == CONTINUES:
            total += powers[step] * rewards[begin + slot, _REWARD]
            end = records[begin + slot, _END]
            step += 1
            slot = slot + 1 if slot + 1 < capacity else 0
        returns[i] = total
        discounts[i] = powers[step]
        if end == TERMINATED:
            # There is no frame after a termination; next_obs, which discount 0 masks out, repeats obs.
            step, slot, discounts[i] = 0, slots[i], 0.0
        next_entries[i] = entries[i] + step
        reach = next_entries[i] - starts[begin + slot, _START]
        _copy_stack(frames, begin, capacity, slot, reach, next_obs, i)


@helper
def _copy_stack(frames: Any, begin: Any, capacity: Any, slot: Any, reach: Any, obs: Any, i: Any) -> None:
    """Copy the stack of a slot to obs[i] [stack, pixels]; its ring begins at row `begin` of `frames`.

    reach: number of entries back to the first of the episode, whose frame is repeated before it. If another process is
    overwriting the entry, `reach` can be negative; the result is then meaningless and the caller discards it.
    """
    stack = obs.shape[1]
    for k in range(stack):
        place = slot - min(stack - 1 - k, max(reach, 0))
        row = begin + (place if place >= 0 else place + capacity)
        for pixel in range(obs.shape[2]):  # compiled to vector moves; assigning the row is three times slower
            obs[i, k, pixel] = frames[row, pixel]
