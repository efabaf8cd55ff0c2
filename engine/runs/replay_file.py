"""The shape of a replay, and the replay of a checkpoint: the arrays that follow from a shape, their checks, their file.

The entry numbers, actions and priorities of a foreign file would lead compiled code beyond its arrays, or a run to a
loss that is not a number. They are checked once, before any of them is used; what a replay writes always passes.

The safetensors package would copy all arrays, so saving or loading a replay would need its memory twice. The format:
length of the header (uint64), header (JSON: dtype, shape and offsets of each array), bytes of the arrays.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.config.game import FrameDtype, Spec
from engine.runtime.files import new_file, open_regular
from engine.runtime.formats import DTYPES, tensor_entries
from engine.runtime.stored_arrays import (
    LARGEST_COUNT,
    LARGEST_OBSERVATION,
    LARGEST_PRIORITY,
    LARGEST_REWARD,
    LEAST_PRIORITY,
    check_numbers,
    stored_array,
)

ACTION_LIMIT = 2**15
"""Actions must be below it, so that an entry can hold them (int16)."""
NO_ACTION = -1
CONTINUES, TERMINATED, TRUNCATED = 0, 1, 2
"""What `ends` says of an entry."""
_OPEN_APPEND = 2  # most entries that an interrupted append has claimed

Arrays = Mapping[str, NDArray[Any]]


class Stored(NamedTuple):
    """One array of a replay: its shape, the dtypes that it may have in a file, and the range of its numbers."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    low: float = 0
    high: float = LARGEST_COUNT


@dataclass(frozen=True)
class ReplayShape:
    """Rings of entries, from which the arrays of a replay follow.

    Args:
        lanes: number of rings, one for each environment that steps with the others.
        capacity: entries per ring; must be more than n_step + stack.
        frame_shape: shape of a frame, e.g. (height, width).
        stack: frames in an observation.
        n_step: length of the return's window, in environment steps.
        action_limit: actions must be below it, such as the number of a game's actions; others in a file are refused.
        mask_actions: number of actions in the masks of legal actions that are stored with frames; 0 for no masks.
        frame_dtype: of the elements of a frame.
    """

    lanes: int
    capacity: int
    frame_shape: tuple[int, ...]
    stack: int = 4
    n_step: int = 1
    action_limit: int = ACTION_LIMIT
    mask_actions: int = 0
    frame_dtype: FrameDtype = "uint8"

    def __post_init__(self) -> None:
        least = self.n_step + self.stack
        if self.capacity <= least:
            raise ValueError(f"capacity must be more than n_step + stack ({least}), got {self.capacity}")

    def storage(self, used: int) -> dict[str, Stored]:
        """The arrays of a storage, of which the first `used` slots of each ring are in use: [lanes, used, ...] with one
        element per entry, and [lanes]."""
        slots, lanes, count = (self.lanes, used), (self.lanes,), ("int64",)
        observations = (-LARGEST_OBSERVATION, LARGEST_OBSERVATION) if self.frame_dtype == "float32" else (0, 255)
        masks = {"masks": Stored((*slots, self.mask_actions), ("bool",), 0, 1)} if self.mask_actions else {}
        return {
            "frames": Stored((*slots, *self.frame_shape), (self.frame_dtype,), *observations),
            "actions": Stored(slots, ("int16", "int64"), NO_ACTION, self.action_limit - 1),
            "rewards": Stored(slots, ("float32",), -LARGEST_REWARD, LARGEST_REWARD),
            "ends": Stored(slots, ("uint8",), CONTINUES, TRUNCATED),
            "episode_starts": Stored(slots, count),  # entry number of the episode's first frame
            **masks,
            "written": Stored(lanes, count),  # entries written so far, the number of the next one
            "ended": Stored(lanes, count),  # entries below this belong to episodes whose end is known
            "open_start": Stored(lanes, count),  # first entry of the episode in progress
        }

    def sampler(self, used: int) -> dict[str, Stored]:
        """The arrays of a prioritized sampler; others have none."""
        lanes = Stored((self.lanes,), ("int64",))
        return {
            "priorities": Stored((self.lanes, used), ("float64",), 0, LARGEST_PRIORITY),  # 0: can't be sampled
            "largest": Stored((1,), ("float64",), LEAST_PRIORITY, LARGEST_PRIORITY),
            "seen": lanes,  # entries written when priorities were last given
            "weighed": lanes,  # entries below this have a priority
        }

    def drawn(self, batch_size: int) -> dict[str, Stored]:
        """The arrays of a batch that was drawn in advance."""
        batch = (batch_size,)
        return {
            "ahead.lanes": Stored(batch, ("int64",), 0, self.lanes - 1),
            "ahead.entries": Stored(batch, ("int64",)),
            "ahead.weights": Stored(batch, ("float32",), 0, 1),
            "ahead.scales": Stored(batch, ("float64",), 1 / LARGEST_PRIORITY**3, LARGEST_PRIORITY**3),
        }


def _check(arrays: Arrays, wanted: Mapping[str, Stored]) -> None:
    """Raise `ValueError` naming the first array that is missing, or another one than it must be."""
    for name, (shape, dtypes, low, high) in wanted.items():
        array = stored_array(arrays, name, shape, *dtypes)
        if array.dtype != np.uint8 or high < 255:  # no number in a picture is wrong, and there are many
            check_numbers(name, array, low, high)


def checked_state(state: Arrays, shape: ReplayShape) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] | None:
    """The parts of a replay's state that are the storage's and the sampler's; None if the storage has another shape. A
    ring that has wrapped around fits only the same capacity.

    Raises `ValueError` if no replay can have written the state.
    """
    parts: dict[str, dict[str, NDArray[Any]]] = {"storage": {}, "sampler": {}}
    for key, array in state.items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = array
    storage, sampler = parts["storage"], parts["sampler"]
    frames = storage.get("frames", np.empty(0))
    if frames.ndim < 2 or frames.dtype not in (np.uint8, np.float32):
        raise ValueError("frames are missing, or not uint8 or float32 [lanes, entries, ...]")
    if (frames.shape[0], *frames.shape[2:], frames.dtype) != (shape.lanes, *shape.frame_shape, shape.frame_dtype):
        return None
    used, written = frames.shape[1], stored_array(storage, "written", (shape.lanes,), np.int64)
    check_numbers("written", written, 0, LARGEST_COUNT)
    most = int(written.max())
    if (used != shape.capacity) if most > used else (used > shape.capacity):
        return None
    if used > most:
        raise ValueError(f"frames must be those of {most} entries, got {used}")
    sampleable = check_entries(storage, shape, used, written)
    is_drawn = {name.startswith("ahead.") for name in sampler}
    if False in is_drawn:
        _check(sampler, shape.sampler(used))
        _check_priorities(sampler, written, sampleable)
    if True in is_drawn:
        _check(sampler, shape.drawn(stored_array(sampler, "ahead.lanes", (None,), np.int64).size))
    return storage, sampler


def check_replay(path: Path, spec: Spec, n_step: int) -> None:
    """Check the replay of a checkpoint of a game with `spec`, whatever its lanes and its capacity were.

    Raises `ValueError` if no replay can have written it, `OSError` if it can't be read.
    """
    state = mapped_arrays(path)
    lanes, used, *_ = *state.get("storage.frames", np.empty(0)).shape, 0, 0
    shape = replay_shape(spec, lanes, max(used, n_step + spec.stack + 1), n_step)
    known = {f"storage.{name}" for name in shape.storage(0)}
    known |= {f"sampler.{name}" for name in shape.sampler(0) | shape.drawn(0)}
    if state.keys() - known or checked_state(state, shape) is None:
        raise ValueError(f"must have {', '.join(sorted(known))} of its game, got {', '.join(sorted(state)[:20])}")


def replay_shape(spec: Spec, lanes: int, capacity: int, n_step: int) -> ReplayShape:
    """The shape of a replay for a game with `spec`."""
    return ReplayShape(
        lanes, capacity, spec.frame_shape, spec.stack, n_step, spec.actions, spec.mask_actions, spec.frame_dtype
    )


def check_entries(storage: Arrays, shape: ReplayShape, used: int, claimed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Check the entries in the first `used` slots of each ring, and the numbers of entries; the order of entries below
    `claimed` [lanes] less the capacity is not checked. Returns which slots can be sampled, bool [lanes, used].

    Raises `ValueError` naming the first array that no storage can have written.
    """
    _check(storage, shape.storage(used))
    actions, starts, written, ended = (storage[name] for name in ("actions", "episode_starts", "written", "ended"))
    check_numbers("claimed", claimed - written, 0, _OPEN_APPEND)
    for name in ("ended", "open_start"):
        check_numbers(f"{name} less written", storage[name] - written, -LARGEST_COUNT, 0)
    sampleable, slots = np.empty((shape.lanes, used), np.bool_), np.arange(used)
    for lane in range(shape.lanes):  # one at a time, which takes little memory
        newest, oldest = written[lane] - 1, claimed[lane] - shape.capacity
        entries = newest - (newest - slots) % shape.capacity
        is_held = entries >= max(oldest, 0)
        check_numbers("episode_starts less entries", (starts[lane] - entries)[is_held], -LARGEST_COUNT, 0)
        complete = max(written[lane] - shape.n_step, ended[lane])
        is_whole = np.maximum(entries - shape.stack + 1, starts[lane]) >= oldest
        sampleable[lane] = is_held & is_whole & (entries < complete) & (actions[lane] != NO_ACTION)
    if np.minimum(written, shape.capacity).sum() > shape.lanes * (shape.n_step + 1) and not sampleable.any():
        raise ValueError("of the entries that are held, none can be sampled")
    return sampleable


def _check_priorities(sampler: Arrays, written: NDArray[np.int64], sampleable: NDArray[np.bool_]) -> None:
    """Check a prioritized sampler, for a storage whose entries are `sampleable` [lanes, used]."""
    for priorities, can_be_sampled in zip(sampler["priorities"], sampleable, strict=True):
        has_priority = priorities != 0
        check_numbers("priorities", priorities[has_priority], LEAST_PRIORITY, LARGEST_PRIORITY)
        if not np.array_equal(has_priority, can_be_sampled):
            raise ValueError("priorities must be those of the entries that can be sampled")
    for name in ("seen", "weighed"):
        check_numbers(f"{name} less written", sampler[name] - written, -LARGEST_COUNT, 0)


_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_ALIGNMENT = 8  # bytes
PIECE_BYTES = 2**24


class Column(Protocol):
    """Something that can be saved: an array (possibly a view), or an object that returns arrays when indexed."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, part: Any, /) -> Any:
        """The part as NDArray."""


def save_arrays(path: Path, columns: Mapping[str, Column], progress: Callable[[], object] = lambda: None) -> None:
    """Write arrays [lanes, entries, ...], and small ones of fewer dimensions, to a safetensors file.

    At most about `PIECE_BYTES` are copied at a time. `progress` is called after each piece is on disk.
    """
    header, end = {}, 0
    names = sorted(columns, key=lambda name: (-columns[name].dtype.itemsize, name))  # so that every array is aligned
    for name in names:
        shape, dtype = columns[name].shape, columns[name].dtype
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with new_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            for piece in _pieces(columns[name]):
                file.write(np.ascontiguousarray(piece).data)
                file.flush()
                os.fsync(file.fileno())
                progress()


def mapped_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a safetensors file copy-on-write: unread parts stay on disk, writes never reach the file.

    Raises as `tensor_entries` does.
    """
    entries, begin = tensor_entries(path)
    if path.stat().st_size == begin:  # an empty file can't be mapped
        return {name: np.empty(entry.shape, DTYPES[entry.dtype]) for name, entry in entries.items()}
    with open_regular(path, os.O_RDONLY) as file:
        data = np.memmap(file, np.uint8, "c", offset=begin)
    return {
        name: data[slice(*entry.data_offsets)].view(DTYPES[entry.dtype]).reshape(entry.shape)
        for name, entry in entries.items()
    }


def _pieces(column: Column) -> Iterator[NDArray[Any]]:
    """All pieces of a column, in order."""
    if len(column.shape) < 2:
        yield column[...]
        return
    lanes, entries, *rest = column.shape
    many = max(1, PIECE_BYTES // (math.prod(rest) * column.dtype.itemsize))
    for lane in range(lanes):
        for first in range(0, entries, many):
            yield column[lane, first : first + many]
