"""Finds actions that bring Mario on from a state, by trying many plans at once in an emulator that draws nothing.

A plan is a sequence of actions, each held for a random time, as people play platform games. `find_way` puts plans
together until the flag is reached. `continuation` finds out what to do from a state before a mistake: it tries what the
way does at that place, then the same a little earlier or later, then with random changes, and takes the first that
works. So similar states get similar answers, which a network can learn; random plans would contradict each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.envs.mario import LaneState, MarioLanes, MarioTask, rules

PLANS = 64
"""Plans that are tried at once."""
_HOLDS = (2, 5, 10, 16)
"""Longest times, in environment steps, for which a plan holds an action: swimming needs short ones, jumps long ones."""
_RUNS, _LONGEST_JUMP = (4, 12, 40), 16
"""Longest times between jumps, and of a jump, of plans that only run and jump."""
_LOOK_AHEAD, _COMMIT = 40, 10
"""Environment steps of the plans from which a way is put together, and how many of the best one are used."""
_LEAST_GAIN = 20
"""Pixels that a plan of a way must gain."""
_GOOD_GAIN = 0.8
"""Share of the highest gain with which a plan is good enough. The simplest of these is followed: it is easier to
learn."""
_GIVE_UP = 400
"""Sets of plans without such a gain after which no way is found."""
_SIMPLIFICATIONS = 12
"""Sets of simpler variants of a way that are tried."""
_SHIFTS = sorted(range(-10, 11), key=abs)
"""Environment steps by which a continuation follows the way earlier or later, the smallest first."""
_CHANGED_ONCE = 44
"""Continuations up to this one differ from a shifted way in one place, the others in two."""


@dataclass(frozen=True)
class Way:
    """Actions that clear a stage from its start, and where Mario is before each of them."""

    actions: NDArray[np.int64]  # [steps]
    areas: NDArray[np.int64]  # [steps]
    xs: NDArray[np.int64]  # [steps], pixels

    def step_at(self, area: int, x: int) -> int | None:
        """The environment step at which the way comes closest to a place; None if it does not enter the area."""
        inside = np.flatnonzero(self.areas == area)
        return int(inside[np.abs(self.xs[inside] - x).argmin()]) if inside.size else None


@dataclass(frozen=True)
class _Outcome:
    """What became of plans; arrays [PLANS]."""

    alive: NDArray[np.bool_]  # or cleared
    clears: NDArray[np.bool_]
    gains: NDArray[np.float64]  # pixels, less the ticks of the game's clock
    lengths: NDArray[np.int64]  # environment steps until death or flag


class PlanSearch:
    """A search for plans, for all stages of a game.

    Args:
        task: actions and frame skip; its stage does not matter.
        seed: of the plans.
        threads: threads that step the emulator.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(self, task: MarioTask, *, seed: int, threads: int, rom: Path | None = None) -> None:
        task = dataclasses.replace(task, sticky=0.0, stall_steps=0, ends_at_loops=True)
        self._lanes = MarioLanes(task, PLANS, threads=threads, restart=False, rom=rom, draws=False)
        self._alone = MarioLanes(task, 1, restart=False, rom=rom, draws=False)
        self._random = np.random.default_rng(seed)
        self._preferences = np.array([_preference(name.split("+")) for name in task.action_names])
        self._fastest = int(self._preferences.argmax())
        on_ground = np.array(["A" not in name.split("+") for name in task.action_names])
        self._run = int(np.where(on_ground, self._preferences, -1).argmax())

    def find_way(self, start: LaneState, stopped: Callable[[], bool] = lambda: False) -> Way | None:
        """A way from a start to the flag; None if the search gave up or was stopped."""
        actions = self._find_actions(start, stopped)
        if actions is None:
            return None
        for _ in range(_SIMPLIFICATIONS):
            plans = self._simpler(actions)
            tried = self._try(start, plans)
            best = int(np.where(tried.clears, _changes(plans) + 0.3 * tried.lengths, np.inf).argmin())
            actions = plans[best, : tried.lengths[best]]
        return self._described(start, actions)

    def continuation(self, state: LaneState, way: Way, steps: int, at_least: float) -> NDArray[np.int64] | None:
        """Actions [n] that clear the stage, or that Mario survives for `steps` environment steps with a gain of
        `at_least` pixels; None if none were found. Actions beyond `steps` follow the way to its end."""
        self._alone.load_lane(0, state)
        at = way.step_at(*self._place())
        if at is not None:
            plans = self._variants(way, at, steps)
            tried = self._try(state, plans[:, :steps])
            good = np.flatnonzero(tried.clears | (tried.alive & (tried.gains >= at_least)))
            if good.size:
                first = int(good[0])
                return plans[first, : tried.lengths[first]] if tried.clears[first] else plans[first]
        plans = self._random_plans(steps)
        tried = self._try(state, plans)
        gains = np.where(tried.clears, np.inf, np.where(tried.alive, tried.gains, -np.inf))
        best = int(gains.argmax())
        return plans[best, : tried.lengths[best]] if gains[best] >= at_least else None

    def close(self) -> None:
        self._lanes.close()
        self._alone.close()

    def _find_actions(self, start: LaneState, stopped: Callable[[], bool]) -> NDArray[np.int64] | None:
        """The best of many random plans is followed for a while, again and again. Where none of them gains anything,
        the search goes back, further each time."""
        reached, actions = [(start, 0)], np.empty(0, np.int64)
        failures, rest = 0, np.empty(0, np.int64)
        while failures < _GIVE_UP and not stopped():
            state, at = reached[-1]
            plans = self._random_plans(_LOOK_AHEAD)
            plans[0, : rest.size] = rest
            tried = self._try(state, plans)
            gains = np.where(tried.clears, 1e6 - tried.lengths, np.where(tried.alive, tried.gains, -np.inf))
            best = int(gains.argmax())
            if tried.clears[best]:
                return np.concatenate((actions[:at], plans[best, : tried.lengths[best]]))
            if gains[best] < _LEAST_GAIN:
                failures += 1
                rest = rest[:0]
                if failures % 2 == 0:
                    del reached[max(1, len(reached) - 1 - failures // 8) :]
                continue
            best = int(np.where(gains >= _GOOD_GAIN * gains[best], _changes(plans), np.inf).argmin())
            used, rest = plans[best, :_COMMIT], plans[best, _COMMIT:]
            self._alone.load_lane(0, state)
            for action in used:
                self._alone.step(np.array([action]))
            actions = np.concatenate((actions[:at], used))
            reached.append((self._alone.lane_state(0), actions.size))
        return None

    def _random_plans(self, steps: int) -> NDArray[np.int64]:
        """Plans [PLANS, steps]. Half of them run and jump; the others differ in the actions they prefer. They differ in
        how long they hold an action."""
        plans = np.empty((PLANS, steps), np.int64)
        for number, plan in enumerate(plans):
            if number % 2:
                actions = np.resize(self._random.permutation((self._run, self._fastest)), steps)
                runs = self._random.integers(1, int(self._random.choice(_RUNS)) + 1, steps)
                jumps = self._random.integers(1, _LONGEST_JUMP + 1, steps)
                plan[:] = np.repeat(actions, np.where(actions == self._run, runs, jumps))[:steps]
                continue
            weights = self._random.gamma(self._preferences) + 1e-9
            actions = self._random.choice(weights.size, steps, p=weights / weights.sum())
            holds = self._random.integers(1, int(self._random.choice(_HOLDS)) + 1, steps)
            plan[:] = np.repeat(actions, holds)[:steps]
        return plans

    def _simpler(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Variants [PLANS, steps] of actions [steps], in which one to three of the actions that are held become those
        before or after them. The first is the original."""
        begins = np.flatnonzero(np.diff(actions, prepend=-1))
        ends = np.append(begins[1:], actions.size)
        variants = np.tile(actions, (PLANS, 1))
        for variant in variants[1:]:
            for _ in range(int(self._random.integers(1, 4))):
                held = int(self._random.integers(begins.size))
                other = held + int(self._random.choice((-1, 1)))
                if 0 <= other < begins.size:
                    variant[begins[held] : ends[held]] = actions[begins[other]]
        return variants

    def _variants(self, way: Way, at: int, steps: int) -> NDArray[np.int64]:
        """Continuations [PLANS, n] of which the first `steps` are to be tried: the way from its step `at` on, earlier
        or later, and then with random changes. After the way's end they go on with the fastest action."""
        length = steps + way.actions.size
        plans = np.full((PLANS, length), self._fastest)
        probabilities = self._preferences / self._preferences.sum()
        for number, plan in enumerate(plans):
            shift = _SHIFTS[number] if number < len(_SHIFTS) else int(self._random.integers(-4, 5))
            follows = way.actions[max(0, at + shift) :]
            plan[: follows.size] = follows
            for _ in range(0 if number < len(_SHIFTS) else 1 if number < _CHANGED_ONCE else 2):
                begin, held = self._random.integers(0, steps), self._random.integers(1, 13)
                plan[begin : begin + held] = self._random.choice(probabilities.size, p=probabilities)
        return plans

    def _try(self, state: LaneState, plans: NDArray[np.int64]) -> _Outcome:
        """Follow plans [PLANS, steps] from a state."""
        for lane in range(PLANS):
            self._lanes.load_lane(lane, state)
        over, clears = np.zeros(PLANS, np.bool_), np.zeros(PLANS, np.bool_)
        gains, lengths = np.zeros(PLANS), np.full(PLANS, plans.shape[1])
        for moment in range(plans.shape[1]):
            step = self._lanes.step(plans[:, moment])
            gains += np.where(over, 0, self._lanes.book[:, rules.STEP_PROGRESS])
            ends = step.terminated & ~over
            clears |= ends & step.clears
            lengths[ends] = moment + 1
            over |= ends
            if over.all():
                break
        return _Outcome(~over | clears, clears, gains, lengths)

    def _described(self, start: LaneState, actions: NDArray[np.int64]) -> Way:
        """A way with its places."""
        self._alone.load_lane(0, start)
        places = np.empty((actions.size, 2), np.int64)
        for moment, action in enumerate(actions):
            places[moment] = self._place()
            self._alone.step(np.array([action]))
        return Way(actions, places[:, 0], places[:, 1])

    def _place(self) -> tuple[int, int]:
        """Area and x of the single lane."""
        _, area, x = rules.where(self._alone.emulator.ram)
        return int(area[0]), int(x[0])


def _changes(plans: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each plan [n, steps] changes its action, int64 [n]."""
    return np.count_nonzero(np.diff(plans, axis=1), axis=1)


def _preference(buttons: list[str]) -> float:
    """How much random plans prefer an action, by its buttons: to run and jump to the right."""
    speed = 1 + ("right" in buttons) + ("A" in buttons) + ("B" in buttons) - 2 * ("left" in buttons)
    return 0.3 * float(max(0.5, speed) ** 1.5)
