"""Finds actions that lead from a state to the flag, by exploring from an archive of states (Go-Explore, Ecoffet et al.
2021, arXiv:2004.12919).

The archive has up to four states for each place that was reached: area, 32 pixels of x, 40 of y, and how far Mario's
route through a maze is right. Random plans start from states that are far ahead or were rarely used. The states of a
place differ in what enemies and platforms do, so that a place can be left though some of its states are hopeless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.games.mario import rules
from engine.games.mario.lanes import LaneState
from engine.games.mario.search.plans import RandomPlans
from engine.games.mario.search.trials import Trials

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
