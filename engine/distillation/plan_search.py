"""Finds actions that bring Mario on, by trying many plans at once in an emulator that draws nothing.

A plan is a sequence of actions, each held for a random time, as people play platform games. `find_way` puts plans
together until the flag is reached. It tries each plan from several starts, where enemies and platforms are at other
places, and prefers plans that survive from all of them: one answer for all starts is what a network learns easily.

`continuation` finds out what to do from a state before a mistake: it tries what the way does at that place, then the
same a little earlier or later, then with random changes, and takes the first that works. So similar states get similar
answers; random plans would contradict each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config.stages import STAGES
from engine.envs.mario import LaneState, MarioLanes, MarioTask, rules

PLANS = 64
"""Continuations that are tried at once."""
_WAY_PLANS, _WAY_STARTS = 32, 8
"""Plans of a way that are tried at once, and from how many of the starts."""
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
_SURVIVAL, _LENIENCE = 0.95, 0.03
"""Share of the starts from which a plan must survive, and how much less is required after each set of plans that
failed."""
_HOPELESS = 0.2
"""If no plan survives from a larger share of the starts, the last part of the way led into a trap."""
_GIVE_UP = 400
"""Sets of plans that failed after which no way is found."""
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
    """What became of plans from several states; arrays [plans, states]."""

    alive: NDArray[np.bool_]  # or cleared
    clears: NDArray[np.bool_]
    gains: NDArray[np.float64]  # pixels, less the ticks of the game's clock
    lengths: NDArray[np.int64]  # environment steps until death or flag


class _Trials:
    """Lanes in which plans are tried.

    Args:
        task: actions and frame skip.
        lanes: maximum number of plans times states.
        threads: threads that step them.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(self, task: MarioTask, lanes: int, *, threads: int, rom: Path | None) -> None:
        self._env = MarioLanes(task, lanes, threads=threads, restart=False, rom=rom, draws=False)

    def run(self, states: Sequence[LaneState], plans: NDArray[np.int64]) -> _Outcome:
        """Follow each of the plans [plans, steps] from each state."""
        shape, lanes = (len(plans), len(states)), self._env.lanes
        tries = shape[0] * shape[1]
        for lane in range(lanes):
            self._env.load_lane(lane, states[lane % shape[1]])
        actions = np.resize(np.repeat(plans, shape[1], axis=0), (lanes, plans.shape[1]))
        over, clears = np.arange(lanes) >= tries, np.zeros(lanes, np.bool_)
        gains, lengths = np.zeros(lanes), np.full(lanes, plans.shape[1])
        for moment in range(plans.shape[1]):
            step = self._env.step(actions[:, moment])
            gains += np.where(over, 0, self._env.book[:, rules.STEP_PROGRESS])
            ends = step.terminated & ~over
            clears |= ends & step.clears
            lengths[ends] = moment + 1
            over |= ends
            if over.all():
                break
        return _Outcome(
            alive=(~over | clears)[:tries].reshape(shape),
            clears=clears[:tries].reshape(shape),
            gains=gains[:tries].reshape(shape),
            lengths=lengths[:tries].reshape(shape),
        )

    def survivors(self, states: Sequence[LaneState], actions: NDArray[np.int64]) -> list[LaneState]:
        """The states to which actions [steps] lead, of those from which Mario survives them."""
        alive = self.run(states, actions[None]).alive[0]
        return [self._env.lane_state(int(lane)) for lane in np.flatnonzero(alive)]

    def close(self) -> None:
        self._env.close()


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
        self._trials = _Trials(task, PLANS, threads=threads, rom=rom)
        self._way_trials = _Trials(task, _WAY_PLANS * _WAY_STARTS, threads=threads, rom=rom)
        self._alone = MarioLanes(task, 1, restart=False, rom=rom, draws=False)
        self.seed, self._random = seed, np.random.default_rng(seed)
        self._preferences = np.array([_preference(name.split("+")) for name in task.action_names])
        self._fastest = int(self._preferences.argmax())
        on_ground = np.array(["A" not in name.split("+") for name in task.action_names])
        self._run = int(np.where(on_ground, self._preferences, -1).argmax())

    def find_way(
        self, stage: str, starts: Sequence[LaneState], stopped: Callable[[], bool] = lambda: False
    ) -> Way | None:
        """A way to the flag from as many of the starts of a stage as the search can manage, at least from one; None if
        it gave up or was stopped. It is the same for the same seed, whatever was searched before."""
        starts = starts[:: -(-len(starts) // PLANS)]
        reached, actions = [(list(starts), 0)], np.empty(0, np.int64)
        failures, lenience, rest = 0, 0, np.empty(0, np.int64)
        random = np.random.default_rng((self.seed, STAGES.index(stage)))
        while failures < _GIVE_UP and not stopped():
            states, at = reached[-1]
            some = [states[drawn] for drawn in random.permutation(len(states))[:_WAY_STARTS]]
            plans = self._random_plans(random, _WAY_PLANS, _LOOK_AHEAD)
            plans[0, : rest.size] = rest
            tried = self._way_trials.run(some, plans)
            survival = tried.alive.mean(1)
            best = float(survival.max())
            gains = np.where(tried.alive, tried.gains, 0).sum(1) / np.maximum(1, tried.alive.sum(1))
            gains[survival < best] = -np.inf
            clears = tried.clears.mean(1)
            rest = rest[:0]
            if clears.max() >= max(_SURVIVAL * best, 1 / len(some)):
                first = int(clears.argmax())
                return self.way_of(np.concatenate((actions[:at], plans[first, : tried.lengths[first].max()])), starts)
            if best < max(_SURVIVAL - _LENIENCE * lenience, 1 / len(some)) or gains.max() < _LEAST_GAIN:
                failures, lenience = failures + 1, lenience + 1
                if best < _HOPELESS or lenience % 3 == 2:
                    del reached[max(1, len(reached) - 1 - lenience // 4) :]
                continue
            chosen = int(np.where(gains >= _GOOD_GAIN * gains.max(), _changes(plans), np.inf).argmin())
            used = plans[chosen, :_COMMIT]
            if not (alive := self._trials.survivors(states, used)):
                failures += 1
                continue
            if best > _SURVIVAL:
                lenience = max(0, lenience - 1)
            rest = plans[chosen, _COMMIT:]
            actions = np.concatenate((actions[:at], used))
            reached.append((alive, actions.size))
        return None

    def way_of(self, actions: NDArray[np.int64], starts: Sequence[LaneState]) -> Way | None:
        """Actions [steps] as a way, with the places that it passes from the first start from which it leads to the
        flag; None if there is no such start."""
        tried = self._trials.run(starts[:PLANS], actions[None])
        if not tried.clears.any():
            return None
        self._alone.load_lane(0, starts[int(tried.clears[0].argmax())])
        places = np.empty((actions.size, 2), np.int64)
        for moment, action in enumerate(actions):
            places[moment] = self._place()
            self._alone.step(np.array([action]))
        return Way(actions, places[:, 0], places[:, 1])

    def continuation(self, state: LaneState, way: Way, steps: int, at_least: float) -> NDArray[np.int64] | None:
        """Actions [n] that clear the stage, or that Mario survives for `steps` environment steps with a gain of
        `at_least` pixels; None if none were found. Actions beyond `steps` follow the way to its end."""
        self._alone.load_lane(0, state)
        at = way.step_at(*self._place())
        if at is not None:
            plans = self._variants(way, at, steps)
            tried = self._trials.run([state], plans[:, :steps])
            good = np.flatnonzero(tried.clears | (tried.alive & (tried.gains >= at_least)))
            if good.size:
                first = int(good[0])
                return plans[first, : tried.lengths[first, 0]] if tried.clears[first] else plans[first]
        plans = self._random_plans(self._random, PLANS, steps)
        tried = self._trials.run([state], plans)
        gains = np.where(tried.clears, np.inf, np.where(tried.alive, tried.gains, -np.inf))
        best = int(gains.argmax())
        return plans[best, : tried.lengths[best, 0]] if gains[best] >= at_least else None

    def close(self) -> None:
        self._trials.close()
        self._way_trials.close()
        self._alone.close()

    def _random_plans(self, random: np.random.Generator, count: int, steps: int) -> NDArray[np.int64]:
        """Plans [count, steps]. Half of them run and jump; the others differ in the actions they prefer. They differ in
        how long they hold an action."""
        plans = np.empty((count, steps), np.int64)
        for number, plan in enumerate(plans):
            if number % 2:
                actions = np.resize(random.permutation((self._run, self._fastest)), steps)
                runs = random.integers(1, int(random.choice(_RUNS)) + 1, steps)
                jumps = random.integers(1, _LONGEST_JUMP + 1, steps)
                plan[:] = np.repeat(actions, np.where(actions == self._run, runs, jumps))[:steps]
                continue
            weights = random.gamma(self._preferences) + 1e-9
            actions = random.choice(weights.size, steps, p=weights / weights.sum())
            holds = random.integers(1, int(random.choice(_HOLDS)) + 1, steps)
            plan[:] = np.repeat(actions, holds)[:steps]
        return plans

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
