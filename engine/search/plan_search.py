"""Finds actions that bring Mario on, by trying many plans at once in an emulator that draws nothing.

`find_way` explores until it reaches the flag from one start (`engine.search.archive`), and changes what it has found
until it leads there from as many starts as possible: one answer for all of them is what a network learns easily. Then
it removes the pauses that it can.

`continuation` finds out what to do from a state before a mistake: it tries what the way does at that place, then the
same a little earlier or later and with random changes, and takes what works and follows the way the longest. So similar
states get similar answers; random plans would contradict each other. `mended` applies it until a way leads to the flag
from a start.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config.stages import STAGES
from engine.envs.mario import LaneState, MarioLanes, MarioTask, rules
from engine.search.archive import Archive
from engine.search.plans import RandomPlans
from engine.search.trials import Trials

STUCK_STEPS = 40
"""Environment steps without progress after which Mario is stuck, which is a mistake like death."""
_STILL_STEPS = (8, 20)
"""The same while a way is searched: how long Mario has stood still can't be seen, so it can't be learned. 20 is tried
where 8 are not enough to find a good way."""
PLANS = 128
"""Plans that are tried at once."""
_CONTINUATIONS = 64
_SHIFTS = sorted(range(-10, 11), key=abs)
"""Environment steps by which a continuation follows the way earlier or later, the smallest first."""
_CHANGED_ONCE = 44
"""Continuations up to this one differ from a shifted way in one place, the others in two."""
_WAYS, _ENOUGH = 2, 0.95
"""Ways that are searched with each limit, and the share of the starts from which a way must lead to the flag to end the
search at once. Otherwise the one that leads there from most starts is used."""
_SHARED_BACK, _SAMPLED_STARTS = (12, 24, 48, 96), 12
"""Environment steps before a mistake at which a shared way is changed, and from how many starts changes are tried."""
_CHANGES = 100
"""Changes after which a way is used as it is."""
_PAUSE = 4
"""Environment steps between one advance and the next that may stay in a way."""
_CUTS = 8
"""Ways to shorten a pause that are tried from all starts."""
_MENDS = 40
"""Mistakes after which a way is not mended for a start."""
_BACK, _AHEAD = (16, 32, 64, 128), 30
"""Environment steps before a mistake at which a mended way differs first, and that must be survived after it."""


@dataclass(frozen=True)
class Way:
    """Actions that clear a stage from one of its starts, and where Mario is before each of them."""

    actions: NDArray[np.int64]  # [steps]
    areas: NDArray[np.int64]  # [steps]
    xs: NDArray[np.int64]  # [steps], pixels

    def step_at(self, area: int, x: int) -> int | None:
        """The environment step at which the way comes closest to a place; None if it does not enter the area."""
        inside = np.flatnonzero(self.areas == area)
        return int(inside[np.abs(self.xs[inside] - x).argmin()]) if inside.size else None

    def advances(self) -> NDArray[np.bool_]:
        """[steps]: whether Mario is further than before in the area, or has just entered it."""
        furthest, found = (-1, -1), []
        for place in zip(self.areas.tolist(), self.xs.tolist(), strict=True):
            found.append(place[0] != furthest[0] or place > furthest)
            furthest = place if found[-1] else furthest
        return np.array(found)


class PlanSearch:
    """A search for plans, for all stages of a game.

    Args:
        task: actions and frame skip; its stage does not matter.
        seed: of the plans.
        threads: threads that step the emulator.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(self, task: MarioTask, *, seed: int, threads: int, rom: Path | None = None) -> None:
        task = dataclasses.replace(task, sticky=0.0, stall_steps=STUCK_STEPS, ends_at_loops=True)
        self._task, self._threads, self._rom = task, threads, rom
        self._all_trials: dict[tuple[int, int], Trials] = {}
        self._still_steps = _STILL_STEPS[0]
        self._alone = MarioLanes(task, 1, restart=False, rom=rom, draws=False)
        self._plans = RandomPlans(task.action_names)
        self.seed, self._random = seed, np.random.default_rng(seed)

    def find_way(
        self, stage: str, starts: Sequence[LaneState], stopped: Callable[[], bool] = lambda: False
    ) -> Way | None:
        """A way to the flag from as many starts of a stage as possible; None if the search gave up or was stopped. It
        is the same for the same seed, whatever was searched before."""
        best, most = None, 0
        for self._still_steps, number in itertools.product(_STILL_STEPS, range(_WAYS)):
            random = np.random.default_rng((self.seed, STAGES.index(stage), number))
            middle, trials = starts[len(starts) // 2], self._trials(PLANS, self._still_steps)
            actions = Archive(middle, trials, self._plans, random).search(stopped)
            if actions is not None:
                actions = self.without_pauses(self._shared(actions, starts, stopped), starts, stopped)
                clears = self._trials(len(starts), self._still_steps).run_from_each(starts, actions).clears.sum()
                if clears > most:
                    best, most = actions, int(clears)
            if stopped():
                return None
            if most >= _ENOUGH * len(starts):
                break
        return None if best is None else self.way_of(best, starts)

    def _shared(
        self, actions: NDArray[np.int64], starts: Sequence[LaneState], stopped: Callable[[], bool]
    ) -> NDArray[np.int64]:
        """Actions [steps] to the flag, changed so that they lead there from as many of the starts as possible."""
        random = np.random.default_rng((self.seed, actions.size))
        best, most = actions, 0
        lost = np.zeros(len(starts), np.bool_)  # starts for which no change was found
        for _ in range(_CHANGES):
            if stopped():
                break
            tried = self._trials(len(starts), self._still_steps).run_from_each(starts, actions)
            if tried.clears.sum() > most:
                best, most = actions[: tried.lengths[tried.clears].max()], int(tried.clears.sum())
            failed = ~tried.clears & ~lost
            if not failed.any():
                break
            end = int(tried.lengths[failed].min())
            for back in _SHARED_BACK:
                if stopped():
                    return best
                changed = self._changed(actions, max(0, end - back), end, starts, failed, random)
                if changed is not None:
                    actions = changed
                    break
            else:
                lost |= failed & (tried.lengths == end)
        return best

    def without_pauses(
        self, actions: NDArray[np.int64], starts: Sequence[LaneState], stopped: Callable[[], bool] = lambda: False
    ) -> NDArray[np.int64]:
        """Actions [steps] without steps during which Mario stands still, wherever they can be left out and as many of
        the starts still lead to the flag. A student that learns to stand still can't see when to go on."""
        all_starts = self._trials(len(starts), self._still_steps)
        clears = all_starts.run_from_each(starts, actions).clears
        first, at = starts[int(clears.argmax())], 0
        while (pause := self._pause(actions, first, at)) is not None and not stopped():
            at = pause[0]
            for without in itertools.islice(self._shortened(actions, first, *pause, stopped), _CUTS):
                if all_starts.run_from_each(starts, without).clears.sum() >= clears.sum():
                    actions = without
                    break
        return actions

    def _shortened(
        self, actions: NDArray[np.int64], start: LaneState, begin: int, end: int, stopped: Callable[[], bool]
    ) -> Iterator[NDArray[np.int64]]:
        """Actions without some of their steps from `begin` to `end`, the most first, that lead to the flag from a
        start. Ends when stopped."""
        trials = self._trials(1, self._still_steps)
        for size in range(end - begin, 0, -1):
            for at in range(begin, end - size + 1):
                if stopped():
                    return
                without = np.delete(actions, slice(at, at + size))
                if trials.run_from_each([start], without).clears[0]:
                    yield without

    def _pause(self, actions: NDArray[np.int64], start: LaneState, after: int) -> tuple[int, int] | None:
        """Where Mario first needs more than `_PAUSE` steps to get further on the way from a start, after step `after`:
        the steps that follow the last one that began further than before, from begin to end. None if he never does."""
        way = self.way_of(actions, [start])
        if way is None:
            return None
        for begin, end in itertools.pairwise([*np.flatnonzero(way.advances()).tolist(), way.xs.size]):
            if begin >= after and end - begin > _PAUSE:
                return begin + 1, end
        return None

    def _changed(
        self,
        actions: NDArray[np.int64],
        at: int,
        end: int,
        starts: Sequence[LaneState],
        failed: NDArray[np.bool_],
        random: np.random.Generator,
    ) -> NDArray[np.int64] | None:
        """Actions changed from step `at` on, after which Mario survives step `end` from more of the starts; None if no
        change was found."""
        trials = self._trials(len(starts), self._still_steps)
        alive = trials.run_from_each(starts, actions[:at]).alive
        states = [trials.env.lane_state(lane) for lane in range(len(starts))]
        groups = [np.flatnonzero(alive & which) for which in (failed, ~failed)]
        sizes = [group.size for group in groups]
        picked = [random.permutation(group)[: _SAMPLED_STARTS // 2] for group in groups]
        drawn = np.concatenate(picked)
        if not picked[0].size:
            return None
        steps = end - at + _AHEAD
        plans = self._variants(actions[at:], 0, steps, random)
        tried = self._trials(len(plans) * drawn.size, self._still_steps).run(
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

    def way_of(self, actions: NDArray[np.int64], starts: Sequence[LaneState]) -> Way | None:
        """Actions [steps] as a way, with the places that it passes from the first of the starts from which it leads to
        the flag; None if there is no such start."""
        for start in starts:
            states, cleared = self._follow(actions, start)
            if cleared:
                places = np.array([place for _, place, _ in states])
                return Way(actions, places[:, 0], places[:, 1])
        return None

    def mended(
        self, way: Way, start: LaneState, stopped: Callable[[], bool] = lambda: False
    ) -> NDArray[np.int64] | None:
        """Actions [steps] to the flag from another start than the way's; None if none were found or it was stopped."""
        actions, mends = way.actions, 0
        while not stopped():
            states, cleared = self._follow(actions, start)
            if cleared:
                return actions[: len(states)]
            end, mends = len(states), mends + 1
            for back in _BACK if mends <= _MENDS else ():
                at = max(0, end - back)
                gained = states[-1][2] - states[at][2]
                plan = self.continuation(states[at][0], way, end - at + _AHEAD, gained + 1)
                if plan is not None:
                    actions = np.concatenate((actions[:at], plan))
                    break
            else:
                return None
        return None

    def continuation(self, state: LaneState, way: Way, steps: int, at_least: float) -> NDArray[np.int64] | None:
        """Actions [n] that clear the stage, or that Mario survives for `steps` environment steps with a gain of
        `at_least` pixels; None if none were found. Actions beyond `steps` follow the way to its end, if the first ones
        were taken from it."""
        self._alone.load_lane(0, state)
        at = way.step_at(*self._place())
        if at is not None:
            plans = self._variants(way.actions, at, steps, self._random)
            tried = self._trials(_CONTINUATIONS).run([state], plans[:, :steps])
            good = np.flatnonzero(tried.clears | (tried.alive & (tried.gains >= at_least)))
            if good.size:
                same = (plans[good] == plans[0]).cumprod(1).sum(1)  # steps in which they follow the way
                chosen = int(good[same.argmax()])
                return plans[chosen, : tried.lengths[chosen]] if tried.clears[chosen] else plans[chosen]
        plans = self._plans.draw(self._random, _CONTINUATIONS, steps)
        tried = self._trials(_CONTINUATIONS).run([state], plans)
        gains = np.where(tried.clears, np.inf, np.where(tried.alive, tried.gains, -np.inf))
        best = int(gains.argmax())
        return plans[best, : tried.lengths[best]] if gains[best] >= at_least else None

    def close(self) -> None:
        for trials in self._all_trials.values():
            trials.close()
        self._alone.close()

    def _follow(
        self, actions: NDArray[np.int64], start: LaneState
    ) -> tuple[list[tuple[LaneState, tuple[int, int], float]], bool]:
        """Follow actions [steps] from a start to the flag, the first mistake, or the last of them. Returns state, area
        and x, and pixels gained before each step; and whether the flag was reached."""
        states, gained = [], 0.0
        self._alone.load_lane(0, start)
        for action in actions:
            states.append((self._alone.lane_state(0), self._place(), gained))
            step = self._alone.step(np.array([action]))
            gained += float(self._alone.book[0, rules.STEP_PROGRESS])
            if step.terminated[0] or step.truncated[0]:
                return states, bool(step.clears[0])
        return states, False

    def _variants(
        self, actions: NDArray[np.int64], at: int, steps: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Continuations [plans, n] of which the first `steps` are to be tried: a way's actions from step `at` on,
        earlier or later, and then with random changes. After their end they go on with the fastest action."""
        length = steps + actions.size
        plans = np.full((_CONTINUATIONS, length), self._plans.fastest)
        for number, plan in enumerate(plans):
            shift = _SHIFTS[number] if number < len(_SHIFTS) else int(random.integers(-4, 5)) * (number % 2)
            follows = actions[max(0, at + shift) :]
            plan[: follows.size] = follows
            for _ in range(0 if number < len(_SHIFTS) else 1 if number < _CHANGED_ONCE else 2):
                begin, held = random.integers(0, steps), random.integers(1, 13)
                plan[begin : begin + held] = self._plans.action(random)
        return plans

    def _trials(self, lanes: int, still_steps: int = STUCK_STEPS) -> Trials:
        """Trials of exactly this many plans, in which Mario is stuck after standing still for so long."""
        key = lanes, still_steps
        if key not in self._all_trials:
            task = dataclasses.replace(self._task, stall_steps=still_steps)
            self._all_trials[key] = Trials(task, lanes, threads=self._threads, rom=self._rom)
        return self._all_trials[key]

    def _place(self) -> tuple[int, int]:
        """Area and x of the single lane."""
        _, area, x = rules.where(self._alone.emulator.ram)
        return int(area[0]), int(x[0])
