"""Finds actions that bring Mario on, by trying many plans at once in an emulator that draws nothing.

`continuation` finds out what to do from a state before a mistake: it tries what a way to the flag does at that place,
then the same a little earlier or later and with random changes, and takes what works and follows the way the longest.
So similar states get similar answers; random plans would contradict each other. `mended` applies it until a way leads
to the flag from another start. `engine.games.mario.search.way_search` finds the way itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.games.mario import rules
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.search.plans import RandomPlans
from engine.games.mario.search.trials import Trials
from engine.games.mario.task import MarioTask

STUCK_STEPS = 40
"""Environment steps without progress after which Mario is stuck, which is a mistake like death."""
PLANS = 128
"""Plans that are tried at once."""
_CONTINUATIONS = 64
_SHIFTS = sorted(range(-10, 11), key=abs)
"""Environment steps by which a continuation follows the way earlier or later, the smallest first."""
_CHANGED_ONCE = 44
"""Continuations up to this one differ from a shifted way in one place, the others in two."""
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

    A search takes minutes: `on_progress`, which may be replaced, is told every few seconds how far it is.
    """

    def __init__(self, task: MarioTask, *, seed: int, threads: int, rom: Path | None = None) -> None:
        self.on_progress: Callable[[str], object] = lambda text: None
        task = dataclasses.replace(task, sticky=0.0, stall_steps=STUCK_STEPS, ends_at_loops=True)
        self._task, self._threads, self._rom = task, threads, rom
        self._all_trials: dict[tuple[int, int], Trials] = {}
        self._alone = MarioLanes(task, 1, restart=False, rom=rom, draws=False)
        self.plans = RandomPlans(task.action_names)
        self.seed, self._random = seed, np.random.default_rng(seed)

    def way_of(self, actions: NDArray[np.int64], starts: Sequence[LaneState]) -> Way | None:
        """Actions [steps] as a way, with the places that it passes from the first of the starts from which it leads to
        the flag; None if there is no such start."""
        for start in starts:
            states, cleared = self._follow(actions, start)
            if cleared:
                places = np.array([place for _, place, _ in states])
                return Way(actions, places[:, 0], places[:, 1])
        return None

    def mended(self, way: Way, start: LaneState, stopped: Callable[[], bool]) -> NDArray[np.int64] | None:
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
            plans = self.variants(way.actions, at, steps, self._random)
            tried = self.trials(_CONTINUATIONS).run([state], plans[:, :steps])
            good = np.flatnonzero(tried.clears | (tried.alive & (tried.gains >= at_least)))
            if good.size:
                same = (plans[good] == plans[0]).cumprod(1).sum(1)  # steps in which they follow the way
                chosen = int(good[same.argmax()])
                return plans[chosen, : tried.lengths[chosen]] if tried.clears[chosen] else plans[chosen]
        plans = self.plans.draw(self._random, _CONTINUATIONS, steps)
        tried = self.trials(_CONTINUATIONS).run([state], plans)
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
                return states, bool(step.success[0])
        return states, False

    def variants(
        self, actions: NDArray[np.int64], at: int, steps: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Continuations [plans, n] of which the first `steps` are to be tried: a way's actions from step `at` on,
        earlier or later, and then with random changes. After their end they go on with the fastest action."""
        length = steps + actions.size
        plans = np.full((_CONTINUATIONS, length), self.plans.fastest)
        for number, plan in enumerate(plans):
            shift = _SHIFTS[number] if number < len(_SHIFTS) else int(random.integers(-4, 5)) * (number % 2)
            follows = actions[max(0, at + shift) :]
            plan[: follows.size] = follows
            for _ in range(0 if number < len(_SHIFTS) else 1 if number < _CHANGED_ONCE else 2):
                begin, held = random.integers(0, steps), random.integers(1, 13)
                plan[begin : begin + held] = self.plans.action(random)
        return plans

    def trials(self, lanes: int, still_steps: int = STUCK_STEPS) -> Trials:
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
