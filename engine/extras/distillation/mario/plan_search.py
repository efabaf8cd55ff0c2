"""Finds actions that bring Mario on, by trying many plans at once in an emulator that draws nothing.

A plan is a sequence of actions. `continuation` finds out what to do from a state before a mistake: it tries what a way
to the flag does at that place, then the same a little earlier or later and with random changes, and takes what works
and follows the way the longest. So similar states get similar answers; random plans would contradict each other.
`engine.extras.distillation.mario.ways` finds the way itself.

Finds actions that lead from a state to the flag, by exploring from an archive of states (Go-Explore, Ecoffet et al.
2021, arXiv:2004.12919).

The archive has up to four states for each place that was reached: area, 32 pixels of x, 40 of y, and how far Mario's
route through a maze is right. Random plans start from states that are far ahead or were rarely used. The states of a
place differ in what enemies and platforms do, so that a place can be left though some of its states are hopeless.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.games.mario import rules
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.task import MarioTask

_HOLDS = (2, 5, 10, 16)
"""Longest times, in environment steps, for which a plan holds an action: swimming needs short ones, jumps long ones."""
_RUNS, _LONGEST_JUMP = (4, 12, 40), 16
"""Longest times between jumps, and of a jump, of plans that only run and jump."""


class RandomPlans:
    """Random plans of a game with these actions, which are joined names of buttons such as `right+A`."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._preferences = np.array([_preference(name.split("+")) for name in actions])
        self.fastest = int(self._preferences.argmax())
        on_ground = np.array(["A" not in name.split("+") for name in actions])
        self._run = int(np.where(on_ground, self._preferences, -1).argmax())

    def draw(self, random: np.random.Generator, count: int, steps: int) -> NDArray[np.int64]:
        """Plans [count, steps]. Half of them run and jump; the others differ in the actions they prefer, and in how
        long they hold one."""
        plans = np.empty((count, steps), np.int64)
        for number, plan in enumerate(plans):
            if number % 2:
                actions = np.resize(random.permutation((self._run, self.fastest)), steps)
                runs = random.integers(1, int(random.choice(_RUNS)) + 1, steps)
                jumps = random.integers(1, _LONGEST_JUMP + 1, steps)
                plan[:] = np.repeat(actions, np.where(actions == self._run, runs, jumps))[:steps]
                continue
            weights = random.gamma(self._preferences) + 1e-9
            actions = random.choice(weights.size, steps, p=weights / weights.sum())
            holds = random.integers(1, int(random.choice(_HOLDS)) + 1, steps)
            plan[:] = np.repeat(actions, holds)[:steps]
        return plans

    def action(self, random: np.random.Generator) -> int:
        """A random action."""
        return int(random.choice(self._preferences.size, p=self._preferences / self._preferences.sum()))


def _preference(buttons: list[str]) -> float:
    """Return how much random plans prefer an action, by its buttons: to run and jump to the right."""
    speed = 1 + ("right" in buttons) + ("A" in buttons) + ("B" in buttons) - 2 * ("left" in buttons)
    return 0.3 * float(max(0.5, speed) ** 1.5)


@dataclass(frozen=True)
class TriedPlans:
    """What became of plans; arrays [plans]."""

    alive: NDArray[np.bool_]  # or cleared
    clears: NDArray[np.bool_]
    gains: NDArray[np.float64]  # pixels, less the ticks of the game's clock
    lengths: NDArray[np.int64]  # environment steps until death, flag or standstill


class Trials:
    """Lanes in which plans are tried.

    Args:
        task: actions and frame skip. Its `stall_steps` and `ends_at_loops` say what is a mistake, like death.
        lanes: maximum number of plans. Those without a plan cost as much as the others.
        threads: threads that step them.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(self, task: MarioTask, lanes: int, *, threads: int, rom: Path | None) -> None:
        self.env = MarioLanes(task, lanes, threads=threads, restart=False, rom=rom, draws=False)

    def run(self, states: Sequence[LaneState], plans: NDArray[np.int64]) -> TriedPlans:
        """Follow plans [plans, steps]: plan i from `states[i % len(states)]`."""
        lanes = self.env.lanes
        for lane in range(lanes):
            self.env.load_lane(lane, states[lane % len(states)])
        actions = np.resize(plans, (lanes, plans.shape[1]))
        over, clears = np.arange(lanes) >= len(plans), np.zeros(lanes, np.bool_)
        gains, lengths = np.zeros(lanes), np.full(lanes, plans.shape[1])
        for moment in range(plans.shape[1]):
            step = self.env.step(actions[:, moment])
            gains += np.where(over, 0, self.env.book[:, rules.STEP_PROGRESS])
            ends = (step.terminated | step.truncated) & ~over
            clears |= ends & step.success
            lengths[ends] = moment + 1
            over |= ends
            if over.all():
                break
        tried = slice(len(plans))
        return TriedPlans((~over | clears)[tried], clears[tried], gains[tried], lengths[tried])

    def run_from_each(self, starts: Sequence[LaneState], actions: NDArray[np.int64]) -> TriedPlans:
        """Follow the same actions [steps] from each start."""
        return self.run(starts, np.tile(actions, (len(starts), 1)))

    def close(self) -> None:
        self.env.close()


STUCK_STEPS = 40
"""Environment steps without progress after which Mario is stuck, which is a mistake like death."""
PLANS = 128
"""Plans that are tried at once."""
_CONTINUATIONS = 64
_SHIFTS = sorted(range(-10, 11), key=abs)
"""Environment steps by which a continuation follows the way earlier or later, the smallest first."""
_CHANGED_ONCE = 44
"""Continuations up to this one differ from a shifted way in one place, the others in two."""


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
            places, cleared = self._follow(actions, start)
            if cleared:
                return Way(actions, *np.array(places).T)
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

    def _follow(self, actions: NDArray[np.int64], start: LaneState) -> tuple[list[tuple[int, int]], bool]:
        """Follow actions [steps] from a start to the flag, the first mistake, or the last of them. Returns area and x
        before each step, and whether the flag was reached."""
        places = []
        self._alone.load_lane(0, start)
        for action in actions:
            places.append(self._place())
            step = self._alone.step(np.array([action]))
            if step.terminated[0] or step.truncated[0]:
                return places, bool(step.success[0])
        return places, False

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


_STEPS, _EVERY = 16, 4
"""Environment steps of a plan, and between two states of it that may be added. A state is added if Mario lives that
long after it."""
_STATES = 4
"""States of a place."""
_USED = 6
"""Number of plans after which a state may be replaced by another one of its place."""
_BEHIND = 500.0
"""Pixels behind the foremost state at which the probability of a state has fallen to 1/e."""
_GIVE_UP = 750
"""Sets of plans after which the search gives up; most stages take 10 to 50, 4-4 some 300."""


@dataclass(eq=False)
class _Reached:
    """A state, and how it was reached."""

    state: LaneState
    before: _Reached | None
    plan: NDArray[np.int64]  # actions that lead here from the state before
    gain: float  # pixels, less the ticks of the game's clock
    length: int  # environment steps
    uses: int = 0

    def actions(self) -> list[int]:
        """All actions from the first state."""
        plans = [self.plan.tolist()]
        earlier = self.before
        while earlier is not None:
            plans.append(earlier.plan.tolist())
            earlier = earlier.before
        return [action for plan in reversed(plans) for action in plan]


class Archive:
    """Explores from one state on.

    Args:
        start: where to begin.
        trials: the lanes in which plans are tried.
        plans: draws them.
        random: of everything.
    """

    def __init__(self, start: LaneState, trials: Trials, plans: RandomPlans, random: np.random.Generator) -> None:
        self._env, self._plans, self._random = trials.env, plans, random
        self._env.load_lane(0, start)
        first = _Reached(start, None, np.empty(0, np.int64), gain=0.0, length=0)
        self._places: dict[Any, list[_Reached]] = {self._keys()[0]: [first]}

    def search(self, stopped: Callable[[], bool]) -> NDArray[np.int64] | None:
        """Actions [steps] to the flag; None if the search gave up or was stopped."""
        for _ in range(_GIVE_UP):
            if stopped():
                return None
            found = self._explore()
            if found is not None:
                return found
        return None

    def _explore(self) -> NDArray[np.int64] | None:
        """Try a set of plans. Returns the actions to the flag, if one of them led there."""
        env, lanes = self._env, self._env.lanes
        begun = self._draw(lanes)
        plans = self._plans.draw(self._random, lanes, _STEPS)
        for lane, reached in enumerate(begun):
            env.load_lane(lane, reached.state)
        over, gains = np.zeros(lanes, np.bool_), np.array([reached.gain for reached in begun])
        candidates: list[tuple[Any, _Reached] | None] = [None] * lanes
        for moment in range(1, _STEPS + 1):
            step = env.step(plans[:, moment - 1])
            gains += np.where(over, 0, env.book[:, rules.STEP_PROGRESS])
            cleared = step.success & step.terminated & ~over
            if cleared.any():
                lane = int(cleared.argmax())
                return np.array(begun[lane].actions() + plans[lane, :moment].tolist())
            over |= step.terminated | step.truncated
            if moment % _EVERY:
                continue
            for candidate in (candidates[lane] for lane in np.flatnonzero(~over)):
                if candidate is not None:
                    self._add(*candidate)
            keys, safe = self._keys(), rules.stands(env.emulator.ram) & ~over
            for lane, earlier in enumerate(begun):
                candidates[lane] = (
                    (
                        keys[lane],
                        _Reached(
                            env.lane_state(lane),
                            earlier,
                            plans[lane, :moment],
                            gain=float(gains[lane]),
                            length=earlier.length + moment,
                        ),
                    )
                    if safe[lane]
                    else None
                )
        return None

    def _draw(self, count: int) -> list[_Reached]:
        """States from which to go on."""
        states = [reached for place in self._places.values() for reached in place]
        gains, uses = np.array([each.gain for each in states]), np.array([each.uses for each in states])
        weights = np.exp((gains - gains.max()) / _BEHIND) / (1 + uses)
        drawn = [states[index] for index in self._random.choice(len(states), count, p=weights / weights.sum())]
        for each in drawn:
            each.uses += 1
        return drawn

    def _add(self, key: Any, reached: _Reached) -> None:
        """Add a state to those of its place, or let it replace one that is later or used up."""
        place = self._places.setdefault(key, [])
        if len(place) < _STATES:
            place.append(reached)
        elif reached.length < place[0].length:
            place[0] = reached
        else:
            slot = int(self._random.integers(_STATES))
            if place[slot].uses > _USED:
                reached.uses = place[slot].uses // 2
                place[slot] = reached

    def _keys(self) -> list[tuple[int, ...]]:
        """The place in each lane."""
        ram = self._env.emulator.ram
        _, areas, xs = rules.where(ram)
        return list(zip(areas.tolist(), (xs // 32).tolist(), *rules.route(ram).T.tolist(), strict=True))
