"""Guided episodes: they begin with actions of a way to the flag that a search has found, then the agent takes over.

So the agent plays in all parts of a stage from the beginning, from states to which its own starts lead (jump-start
reinforcement learning, Uchendu et al. 2023, arXiv:2204.02372). The replay also holds the ways themselves, as it would
hold the games of an expert.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.games.mario.factory import make_task
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.options import options_of
from engine.games.mario.search.plan_search import PLANS, PlanSearch
from engine.games.mario.search.ways import start_of, ways_to_flag
from engine.games.mario.stages import STAGES, stages_of
from engine.runtime.stored_arrays import LARGEST_COUNT, check_numbers, restore_generator, stored_array
from engine.runtime.threads import thread_budget

Ways = Mapping[tuple[int, int], NDArray[np.int64]]
"""Actions [steps] to the flag for each stage, an index of `STAGES`, and each of its starts (`start_of`)."""
Search = Callable[..., Ways]

_REPORT_EVERY_S = 20.0
"""Between two lines of the log that tell how far a search is."""
_NOOPS = "noops"
"""In checkpoints: the no-op frames of the starts whose ways were searched, `noop_min` and `noop_max`."""
WAY = "way_from"
"""In checkpoints: before the numbers of a way's stage and start."""


class WayGuide:
    """Follows ways to the flag; see `engine.envs.guide`.

    Args:
        env: the lanes.
        share: of the episodes that are guided.
        seed: of the choice of these episodes, and of how far each is guided.
        search: finds the ways; see `search_ways`.
    """

    def __init__(
        self, env: MarioLanes, *, share: float, seed: int | np.random.SeedSequence, search: Search | None = None
    ) -> None:
        self.ways: Ways = {}
        """Episodes that begin at other starts are not guided."""
        self._env, self._share, self._search = env, share, search
        self._random = np.random.default_rng(seed)
        self._played = np.zeros(env.lanes, np.int64)  # [lanes], environment steps of the episode
        self._until = np.full(env.lanes, -1, np.int64)  # [lanes], the first that is the agent's; -1: not drawn yet
        self._starts = np.zeros((env.lanes, 2), np.int64)  # [lanes, 2], stage and start of the episode
        self._noops = np.array([env.task.noop_min, env.task.noop_max], np.int64)

    def find_ways(self, *, stopped: Callable[[], bool], log: Callable[[str], object]) -> None:
        """Search the ways, unless `load_state` has restored them."""
        if self._search is not None and not self.ways:
            self.ways = self._search(stopped=stopped, log=log)

    @property
    def guided(self) -> NDArray[np.bool_]:
        """Lanes [lanes] whose episode began with actions of a way."""
        return self._until > 0

    @property
    def leads(self) -> NDArray[np.bool_]:
        """Lanes [lanes] in which the action that was chosen last is that of a way."""
        return self._played <= self._until

    def lead(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The actions [lanes] that are carried out: the agent's, or those of the way in lanes that are still guided."""
        self._begin(self._until < 0)
        led = actions.copy()
        for lane in np.flatnonzero(self._played < self._until).tolist():
            led[lane] = self._way(lane)[self._played[lane]]
        self._played += 1
        return led

    def end(self, ended: NDArray[np.bool_]) -> None:
        """Forget the episodes that `ended` [lanes]."""
        self._played[ended], self._until[ended] = 0, -1

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a checkpoint: JSON values and arrays. Includes the ways, which may have taken minutes to find."""
        arrays = {"played": self._played, "until": self._until, "starts": self._starts}
        ways = {f"{WAY}.{stage}.{start}": way for (stage, start), way in self.ways.items()}
        return dict(self._random.bit_generator.state), {**arrays, **ways, _NOOPS: self._noops}

    def begin_unguided(self) -> None:
        """Leave the episodes in progress to the agent: those of a checkpoint without a guide."""
        self._until[:] = 0

    def load_state(self, random: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load a `state`. Raises `ValueError` if it can't be one."""
        ways: dict[tuple[int, int], NDArray[np.int64]] = {}
        for name in arrays:
            kind, *start = name.split(".")
            if kind == WAY:
                stage, number = map(int, start)
                ways[stage, number] = stored_array(arrays, name, (None,), np.int64)
                check_numbers(name, ways[stage, number], 0, self._env.actions - 1)
        lanes = self._env.lanes
        played, until = (stored_array(arrays, name, (lanes,), np.int64) for name in ("played", "until"))
        starts = stored_array(arrays, "starts", (lanes, 2), np.int64)
        if _NOOPS in arrays and not np.array_equal(stored_array(arrays, _NOOPS, (2,), np.int64), self._noops):
            ways = {}  # of other starts
        if not ways:  # they will be searched again; meanwhile nothing leads the episodes in progress
            until = np.minimum(until, 0)
        lengths = [len(ways.get((stage, start), ())) for stage, start in starts.tolist()]
        check_numbers("played", played, 0, LARGEST_COUNT)
        check_numbers("until", until, -1, LARGEST_COUNT)
        check_numbers("until beyond a way", until - lengths, -LARGEST_COUNT, 0)
        restore_generator(self._random, random)
        self.ways = ways
        self._played[:], self._until[:], self._starts[:] = played, until, starts

    def _begin(self, which: NDArray[np.bool_]) -> None:
        """Draw how far the new episodes in the lanes `which` [lanes] are guided."""
        if not which.any():
            return
        self._starts[which] = np.stack((self._env.stages[which], start_of(self._env.emulator.ram[which])), 1)
        for lane in np.flatnonzero(which).tolist():
            is_guided, length = self._random.random() < self._share, len(self._way(lane))
            self._until[lane] = self._random.integers(1, length + 1) if is_guided and length else 0

    def _way(self, lane: int) -> NDArray[np.int64]:
        stage, start = self._starts[lane].tolist()
        return self.ways.get((stage, start), np.empty(0, np.int64))


def search_ways(config: RunConfig, *, stopped: Callable[[], bool], log: Callable[[str], object]) -> Ways:
    """Ways for all stages of a run; none if `stopped`. Raises `UserError` if a stage seems to have none."""
    options, task = options_of(config), make_task(config)
    rom = None if options.rom is None else Path(options.rom)
    search = PlanSearch(task, seed=0, threads=thread_budget(PLANS).lane_threads, rom=rom)
    found: dict[tuple[int, int], NDArray[np.int64]] = {}
    next_report = time.monotonic() + _REPORT_EVERY_S

    def report(text: str) -> None:
        nonlocal next_report
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + _REPORT_EVERY_S
            log(f"{stage}: {text}")

    search.on_progress = report
    try:
        for stage in stages_of(options.stage):
            log(f"searching ways to the flag of {stage} for --guide; this may take some minutes")
            ways = ways_to_flag(stage, task, search, rom=rom, stopped=stopped)
            if stopped():
                return {}  # not a part of them, which a resumed run would take for all
            log(f"{stage}: found ways from {len(ways)} of {task.starts} starts")
            found |= {(STAGES.index(stage), start): way for start, way in ways.items()}
    except UserError as error:
        raise UserError(f"--guide: {error}") from None
    finally:
        search.close()
    return found
