"""Finds ways to the flag of a stage: in the user's cache, or by a search, which takes minutes.

For a distillation the search looks for one way that works from as many starts as possible: one answer for all of them
is what a network learns easily. A way is explored from one start (plan_search.py) and then changed wherever
it fails from another. Pauses that it does not need are removed. While this goes on, standing still for a few
environment steps is a mistake like death: how long Mario has stood still can't be seen, so it can't be learned.

In the cache a file `$XDG_CACHE_HOME/mario-tui/ways/STAGE-DIGEST.json` (or `~/.cache`) is a list of actions. Whoever
reads it must play them to see whether they still lead to a flag.

`begin_on_ways` lets a share of a run's episodes begin at states of a way (`--guide`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.envs.lanes import Lanes
from engine.errors import UserError
from engine.extras.distillation.mario.plan_search import PLANS, Archive, PlanSearch, Way
from engine.games.mario import rules
from engine.games.mario.actions import STAGES, stages_of
from engine.games.mario.factory import make_task
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.options import MarioOptions
from engine.games.mario.start_states import place_of
from engine.games.mario.task import MarioTask
from engine.runtime.files import private_folder, write_if_possible
from engine.runtime.formats import read_json
from engine.runtime.threads import thread_budget

_MAX_BYTES = 1_000_000
_SEARCH = 2
"""Version of the search. A way that another version found is not used: it might lead to another student."""


class WayCache:
    """The file for the way of one search.

    Args:
        stage: where the way leads to the flag.
        task: its actions, frame skip, strokes and no-ops matter.
        seed: of the search.
    """

    def __init__(self, stage: str, task: MarioTask, seed: int) -> None:
        asked = [_SEARCH, task.action_names, task.frame_skip, task.noop_min, task.noop_max, seed]
        asked += ["strokes"] * task.swim_strokes
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
        self._file = private_folder("CACHE", "ways") / f"{stage}-{digest}.json"
        self._actions = len(task.action_names)

    def load(self) -> NDArray[np.int64] | None:
        """The actions [steps], or None if there are none, or not such as this task has."""
        try:
            actions = read_json(self._file, list[int], _MAX_BYTES, links=True)
        except (OSError, ValueError):
            return None
        return np.array(actions) if actions and all(0 <= action < self._actions for action in actions) else None

    def save(self, actions: NDArray[np.int64]) -> None:
        """Keep actions [steps], if the cache can be written."""
        write_if_possible(self._file, json.dumps(actions.tolist()).encode())


_STILL_STEPS = (8, 20)
"""Environment steps without progress that are a mistake. 20 is tried where 8 are not enough to find a good way."""
_WAYS, _ENOUGH = 2, 0.95
"""Ways that are searched with each limit, and the share of the starts from which a way must lead to the flag to end the
search at once. Otherwise the one that leads there from most starts is used."""
_WORTH_A_WAIT = 0.1
"""Share of the starts by which a way with the higher limit must be better than one with the lower limit."""
_BACK, _AHEAD, _SAMPLED_STARTS = (12, 24, 48, 96), 30, 12
"""Environment steps before a mistake at which a way is changed, that must be survived after it, and from how many
starts changes are tried."""
_CHANGES = 100
"""Changes after which a way is used as it is."""
_PAUSE = 4
"""Environment steps between one advance and the next that may stay in a way."""
_CUTS = 8
"""Ways to shorten a pause that are tried from all starts."""


def find_way(
    search: PlanSearch, stage: str, starts: Sequence[LaneState], stopped: Callable[[], bool] = lambda: False
) -> Way | None:
    """A way to the flag from as many starts of a stage as possible: the best so far if the search was stopped, None if
    there is none. It is the same for the same seed of `search`, whatever was searched before."""
    best, highest = None, 0.0
    for still_steps, handicap in zip(_STILL_STEPS, (0.0, _WORTH_A_WAIT), strict=True):
        adaptation = WayAdaptation(search, starts, still_steps, stopped)
        for number in range(_WAYS):
            search.on_progress("looking for a way")
            random = np.random.default_rng((search.seed, STAGES.index(stage), number))
            exploration = Archive(starts[len(starts) // 2], search.trials(PLANS, still_steps), search.plans, random)
            actions = exploration.search(stopped)
            if actions is None:
                break  # a second exploration would hardly reach the flag either
            actions = adaptation.without_pauses(adaptation.adapted(actions))
            share = float(adaptation.clears(actions).mean())
            if share >= _ENOUGH:
                return search.way_of(actions, starts)
            if best is None or share - handicap > highest:
                best, highest = actions, share - handicap
        if stopped():
            break
    return None if best is None else search.way_of(best, starts)


class WayAdaptation:
    """Changes actions so that they lead to the flag from other starts too.

    Args:
        search: tries the changes.
        starts: where the actions are to begin.
        still_steps: environment steps without progress that are a mistake.
        stopped: asked before every change. What was reached until then is the result.
    """

    def __init__(
        self, search: PlanSearch, starts: Sequence[LaneState], still_steps: int, stopped: Callable[[], bool]
    ) -> None:
        self._search, self._starts, self._still_steps, self._stopped = search, starts, still_steps, stopped
        self._all = search.trials(len(starts), still_steps)

    def clears(self, actions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[starts]: whether actions [steps] lead to the flag from there."""
        return self._all.run_from_each(self._starts, actions).clears

    def adapted(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Actions [steps] to the flag, changed so that they lead there from as many of the starts as possible."""
        random = np.random.default_rng((self._search.seed, actions.size))
        best, most = actions, 0
        lost = np.zeros(len(self._starts), np.bool_)  # starts for which no change was found
        for _ in range(_CHANGES):
            if self._stopped():
                break
            tried = self._all.run_from_each(self._starts, actions)
            if tried.clears.sum() > most:
                best, most = actions[: tried.lengths[tried.clears].max()], int(tried.clears.sum())
            failed = ~tried.clears & ~lost
            if not failed.any():
                break
            end = int(tried.lengths[failed].min())
            reached = f"from {tried.clears.sum()} of {len(self._starts)} starts it leads to the flag"
            self._search.on_progress(f"adapting a way: {reached}; step {end}")
            for back in _BACK:
                if self._stopped():
                    return best
                changed = self._changed(actions, max(0, end - back), end, failed, random)
                if changed is not None:
                    actions = changed
                    break
            else:
                lost |= failed & (tried.lengths == end)
        return best

    def without_pauses(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Actions [steps] without steps during which Mario stands still, wherever they can be left out and as many of
        the starts still lead to the flag. A student that learns to stand still can't see when to go on."""
        clears = self.clears(actions)
        first, at = self._starts[int(clears.argmax())], 0
        while (pause := self._pause(actions, first, at)) is not None and not self._stopped():
            for shorter in itertools.islice(self._shortened(actions, first, *pause), _CUTS):
                if self.clears(shorter).sum() >= clears.sum():
                    actions = shorter
                    break
            else:
                at = pause[0]
        return actions

    def _changed(
        self, actions: NDArray[np.int64], at: int, end: int, failed: NDArray[np.bool_], random: np.random.Generator
    ) -> NDArray[np.int64] | None:
        """Actions changed from step `at` on, after which Mario survives step `end` from more of the starts; None if no
        change was found."""
        alive = self._all.run_from_each(self._starts, actions[:at]).alive
        states = [self._all.env.lane_state(lane) for lane in range(len(self._starts))]
        groups = [np.flatnonzero(alive & which) for which in (failed, ~failed)]
        sizes = [group.size for group in groups]
        picked = [random.permutation(group)[: _SAMPLED_STARTS // 2] for group in groups]
        drawn = np.concatenate(picked)
        if not picked[0].size:
            return None
        steps = end - at + _AHEAD
        plans = self._search.variants(actions[at:], 0, steps, random)
        tried = self._search.trials(len(plans) * drawn.size, self._still_steps).run(
            [states[index] for _ in plans for index in drawn.tolist()], np.repeat(plans[:, :steps], drawn.size, axis=0)
        )
        survive = (tried.alive & (tried.gains > 0)) | tried.clears
        shares = np.split(survive.reshape(len(plans), -1), [picked[0].size], axis=1)
        expected = sum(
            share.mean(1) * size for share, size in zip(shares, sizes, strict=True) if share.shape[1]
        )  # starts from which Mario survives
        gains = np.where(survive, tried.gains, 0).reshape(len(plans), -1).mean(1)
        chosen = int(np.lexsort((gains, expected))[-1])  # the fastest: how long Mario has waited can't be seen
        return np.concatenate((actions[:at], plans[chosen])) if expected[chosen] > expected[0] else None

    def _shortened(
        self, actions: NDArray[np.int64], start: LaneState, begin: int, end: int
    ) -> Iterator[NDArray[np.int64]]:
        """Actions without some of their steps from `begin` to `end`, the most first, that lead to the flag from a
        start. Ends when stopped."""
        trials = self._search.trials(1, self._still_steps)
        for size in range(end - begin, 0, -1):
            for at in range(begin, end - size + 1):
                if self._stopped():
                    return
                shorter = np.delete(actions, slice(at, at + size))
                if trials.run_from_each([start], shorter).clears[0]:
                    yield shorter

    def _pause(self, actions: NDArray[np.int64], start: LaneState, after: int) -> tuple[int, int] | None:
        """Return where Mario first needs more than `_PAUSE` steps to get further on the way from a start, after step
        `after`: the steps that follow the last one that began further than before, from begin to end. None if he never
        does."""
        way = self._search.way_of(actions, [start])
        if way is None:
            return None
        for begin, end in itertools.pairwise([*np.flatnonzero(way.advances()).tolist(), way.xs.size]):
            if begin >= after and end - begin > _PAUSE:
                return begin + 1, end
        return None


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
    starts = starts_of(dataclasses.replace(task, stage=stage), rom)
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


def starts_of(task: MarioTask, rom: Path | None = None) -> list[LaneState]:
    """The states at which episodes begin: one for each number of no-ops."""
    env = MarioLanes(task, task.starts, rom=rom)
    env.spread_starts()
    env.reset()
    starts = [env.lane_state(lane) for lane in range(task.starts)]
    env.close()
    return starts


_REPORT_EVERY_S = 20.0
"""Between two lines of the log that tell how far a search is."""


def begin_on_ways(
    config: RunConfig, lanes: Lanes, *, stopped: Callable[[], bool], log: Callable[[str], object]
) -> None:
    """For a run with the option `guide`: search a way to the flag of each stage, which takes seconds to minutes, and
    let its share of the episodes begin on these ways. A checkpoint's lanes know them already.

    Raises `UserError` if a stage seems to have none.
    """
    assert isinstance(lanes, MarioLanes)
    if lanes.has_ways:
        return
    options = MarioOptions.of(config)
    # from one start: the run itself learns what the others need
    task = dataclasses.replace(make_task(config), noop_max=0, random_phase=False, halfway_starts=0.0, sticky=0.0)
    rom = None if options.rom is None else Path(options.rom)
    search = PlanSearch(task, seed=0, threads=thread_budget(PLANS).lane_threads, rom=rom)
    states: dict[int, bytes] = {}
    next_report = time.monotonic() + _REPORT_EVERY_S

    def report(text: str) -> None:
        nonlocal next_report
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + _REPORT_EVERY_S
            log(f"{stage}: {text}")

    search.on_progress = report
    try:
        for stage in stages_of(options.stage):
            log(f"searching a way to the flag of {stage} for --guide; this may take minutes")
            part = dataclasses.replace(task, stage=stage)
            way = way_to_flag(stage, part, search, rom=rom, stopped=stopped)
            if way is None or stopped():
                return  # without a part of the ways, which a resumed run would take for all
            states |= states_along(way.actions, part, options.noop_max, rom)
            log(f"{stage}: found a way of {way.actions.size} steps")
    except UserError as error:
        raise UserError(f"--guide: {error}") from None
    finally:
        search.close()
    lanes.begin_on_ways(states)


def states_along(actions: NDArray[np.int64], task: MarioTask, noops: int, rom: Path | None = None) -> dict[int, bytes]:
    """Saved consoles of a way, actions [steps] from the first start of a task, by place (`place_of`): for each place
    the first in which Mario stands or swims, and lives on if no button is pressed for `noops` frames."""
    task = dataclasses.replace(task, stall_steps=0)
    way = MarioLanes(task, 1, restart=False, rom=rom, draws=False)
    way.reset()
    passed: list[tuple[int, LaneState]] = []
    for action in actions:
        step = way.step(np.array([action]))
        if step.terminated[0] or step.truncated[0]:
            break
        if rules.stands(way.emulator.ram)[0]:
            passed.append((int(place_of(way.emulator.ram)[0]), way.lane_state(0)))
    way.close()
    trial = MarioLanes(task, len(passed), restart=False, rom=rom, draws=False)
    for lane, (_, state) in enumerate(passed):
        trial.load_lane(lane, state)
    died = np.zeros(len(passed), np.bool_)
    for _ in range(-(-noops // task.frame_skip)):
        died |= trial.step_buttons(np.zeros(len(passed), np.uint8)).terminated
    trial.close()
    states: dict[int, bytes] = {}
    for dies, (place, state) in zip(died.tolist(), passed, strict=True):
        if not dies:
            states.setdefault(place, state.console)
    return states
