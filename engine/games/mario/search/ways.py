"""Ways to the flag of a stage: from the user's cache, or else searched and kept there."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.search.plan_search import PlanSearch, Way
from engine.games.mario.search.way_cache import WayCache
from engine.games.mario.search.way_search import find_way
from engine.games.mario.task import MarioTask


def way_to_flag(
    stage: str, task: MarioTask, search: PlanSearch, *, rom: Path | None, stopped: Callable[[], bool]
) -> Way | None:
    """A way to the flag from as many starts of a stage as possible. If it was stopped: the best so far, or None.

    Args:
        stage: one of `STAGES`.
        task: actions, frame skip and no-ops of the starts.
        search: takes half a minute to several minutes, if the cache has no way.
        rom: cartridge file; None for the one in gym-super-mario-bros.
        stopped: asked several times a second.

    Raises `UserError` if there seems to be none.
    """
    return _way(stage, task, search, list(starts_of(dataclasses.replace(task, stage=stage), rom).values()), stopped)


def _way(
    stage: str, task: MarioTask, search: PlanSearch, starts: Sequence[LaneState], stopped: Callable[[], bool]
) -> Way | None:
    """`way_to_flag` from these starts."""
    cache = WayCache(stage, task, search.seed)
    known = cache.load()
    way = None if known is None else search.way_of(known, starts)
    if way is not None:
        return way
    way = find_way(search, stage, starts, stopped)
    if stopped():
        return way
    if way is None:
        raise UserError(f"{stage}: the search found no way to the flag")
    cache.save(way.actions)
    return way


def ways_to_flag(
    stage: str, task: MarioTask, search: PlanSearch, *, rom: Path | None, stopped: Callable[[], bool]
) -> dict[int, NDArray[np.int64]]:
    """Actions [steps] to the flag for each start (`start_of`) from which the way of `way_to_flag` could be mended."""
    starts = starts_of(dataclasses.replace(task, stage=stage), rom)
    way = _way(stage, task, search, list(starts.values()), stopped)
    if way is None:
        return {}
    mended: dict[int, NDArray[np.int64]] = {}
    for number, (start, state) in enumerate(starts.items()):
        search.on_progress(f"ways from {len(mended)} of the first {number} of {len(starts)} starts")
        actions = search.mended(way, state, stopped)
        if actions is not None:
            mended[start] = actions
    return mended


def start_of(ram: NDArray[np.uint8]) -> NDArray[np.int64]:
    """A number for the start of each lane [lanes] whose episode has just begun: the CRC-32 of its work RAM, uint8
    [lanes, 2048]. The game's counters would not do: some starts share them."""
    return np.array([zlib.crc32(memory) for memory in ram], np.int64)


def starts_of(task: MarioTask, rom: Path | None = None) -> dict[int, LaneState]:
    """The states at which episodes begin, by `start_of`: one for each number of no-ops."""
    env = MarioLanes(task, task.starts, rom=rom)
    env.spread_starts()
    env.reset()
    starts = {start: env.lane_state(lane) for lane, start in enumerate(start_of(env.emulator.ram).tolist())}
    env.close()
    return starts
