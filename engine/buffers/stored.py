"""Checks of a replay's contents that come from files: a checkpoint's, or memory-mapped ones.

The entry numbers, actions and priorities of a foreign file would lead compiled code beyond its arrays, or a run to a
loss that is not a number. They are checked once, before any of them is used; what a replay writes always passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.runtime.stored_arrays import (
    LARGEST_COUNT,
    LARGEST_PRIORITY,
    LARGEST_REWARD,
    LEAST_PRIORITY,
    check_numbers,
    stored_array,
)

COLUMNS = ("frames", "actions", "rewards", "ends", "episode_starts", "masks")
"""Arrays of a storage with one element per entry; without masks, where all actions are always legal."""
NO_ACTION = -1
CONTINUES, TERMINATED, TRUNCATED = 0, 1, 2
"""What `ends` says of an entry."""
_OPEN_APPEND = 2  # most entries that an interrupted append has claimed

Arrays = Mapping[str, NDArray[Any]]


class Ring(Protocol):
    """What a storage is made for; see `FrameStorage`."""

    lanes: int
    capacity: int
    frame_shape: tuple[int, ...]
    stack: int
    n_step: int
    action_limit: int
    mask_actions: int
    frame_dtype: np.dtype[Any]


def checked_state(state: Arrays, ring: Ring) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] | None:
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
    if (frames.shape[0], *frames.shape[2:], frames.dtype) != (ring.lanes, *ring.frame_shape, ring.frame_dtype):
        return None
    used, written = frames.shape[1], stored_array(storage, "written", (ring.lanes,), np.int64)
    check_numbers("written", written, 0, LARGEST_COUNT)
    most = int(written.max())
    if (used != ring.capacity) if most > used else (used > ring.capacity):
        return None
    if used > most:
        raise ValueError(f"frames must be those of {most} entries, got {used}")
    sampleable = check_entries(storage, ring, used, written)
    if "priorities" in sampler:
        _check_sampler(sampler, ring, written, sampleable)
    if any(name.startswith("ahead.") for name in sampler):
        _check_drawn(sampler, ring)
    return storage, sampler


def check_entries(storage: Arrays, ring: Ring, used: int, claimed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Check the entries in the first `used` slots of each ring, and the numbers of entries; entries below `claimed`
    [lanes] less the capacity are not read. Returns which slots can be sampled, bool [lanes, used].

    Raises `ValueError` naming the first array that no storage can have written.
    """
    lanes, held = ring.lanes, (ring.lanes, used)
    actions = stored_array(storage, "actions", held, np.int16, np.int64)
    starts, ends = (
        stored_array(storage, name, held, kind) for name, kind in (("episode_starts", np.int64), ("ends", np.uint8))
    )
    rewards = stored_array(storage, "rewards", held, np.float32)
    if ring.mask_actions:
        stored_array(storage, "masks", (*held, ring.mask_actions), np.bool_)
    check_numbers("actions", actions, NO_ACTION, ring.action_limit - 1)
    check_numbers("ends", ends, CONTINUES, TRUNCATED)
    check_numbers("rewards", rewards, -LARGEST_REWARD, LARGEST_REWARD)
    written, ended, open_start = (
        stored_array(storage, n, (lanes,), np.int64) for n in ("written", "ended", "open_start")
    )
    check_numbers("written", written, 0, LARGEST_COUNT)
    check_numbers("claimed", claimed - written, 0, _OPEN_APPEND)
    for name, numbers in (("ended", ended), ("open_start", open_start)):
        check_numbers(name, numbers, 0, LARGEST_COUNT)
        check_numbers(f"{name} less written", numbers - written, -LARGEST_COUNT, 0)
    sampleable, slots = np.empty(held, np.bool_), np.arange(used)
    for lane in range(lanes):  # one at a time, which takes little memory
        newest, oldest = written[lane] - 1, claimed[lane] - ring.capacity
        entries = newest - (newest - slots) % ring.capacity
        is_held = entries >= max(oldest, 0)
        check_numbers("episode_starts", starts[lane, is_held], 0, LARGEST_COUNT)
        check_numbers("episode_starts less entries", (starts[lane] - entries)[is_held], -LARGEST_COUNT, 0)
        complete = max(written[lane] - ring.n_step, ended[lane])
        is_whole = np.maximum(entries - ring.stack + 1, starts[lane]) >= oldest
        sampleable[lane] = is_held & is_whole & (entries < complete) & (actions[lane] != NO_ACTION)
    if np.minimum(written, ring.capacity).sum() > lanes * (ring.n_step + 1) and not sampleable.any():
        raise ValueError("of the entries that are held, none can be sampled")
    return sampleable


def _check_sampler(sampler: Arrays, ring: Ring, written: NDArray[np.int64], sampleable: NDArray[np.bool_]) -> None:
    """Check the state of a prioritized sampler, for a storage whose entries are `sampleable` [lanes, used]."""
    priorities = stored_array(sampler, "priorities", sampleable.shape, np.float64)
    for lane in range(ring.lanes):
        has_priority = priorities[lane] != 0
        check_numbers("priorities", priorities[lane, has_priority], LEAST_PRIORITY, LARGEST_PRIORITY)
        if not np.array_equal(has_priority, sampleable[lane]):
            raise ValueError("priorities must be those of the entries that can be sampled")
    check_numbers("largest", stored_array(sampler, "largest", (1,), np.float64), LEAST_PRIORITY, LARGEST_PRIORITY)
    for name in ("seen", "weighed"):
        numbers = stored_array(sampler, name, (ring.lanes,), np.int64)
        check_numbers(name, numbers, 0, LARGEST_COUNT)
        check_numbers(f"{name} less written", numbers - written, -LARGEST_COUNT, 0)


def _check_drawn(sampler: Arrays, ring: Ring) -> None:
    """Check a batch that was drawn in advance."""
    drawn = stored_array(sampler, "ahead.lanes", (None,), np.int64)
    check_numbers("ahead.lanes", drawn, 0, ring.lanes - 1)
    check_numbers("ahead.entries", stored_array(sampler, "ahead.entries", drawn.shape, np.int64), 0, LARGEST_COUNT)
    check_numbers("ahead.weights", stored_array(sampler, "ahead.weights", drawn.shape, np.float32), 0, 1)
    scales = stored_array(sampler, "ahead.scales", drawn.shape, np.float64)
    check_numbers("ahead.scales", scales, 1 / LARGEST_PRIORITY**3, LARGEST_PRIORITY**3)
