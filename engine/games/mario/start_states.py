"""Start states along the way, for stages whose hard parts are far from the start.

A share of the episodes begins at states that earlier episodes reached, and another at those of a way to the flag that a
search has found (Salimans and Chen 2018, arXiv:1812.03381, begin at those of a demonstration). There is one state for
every 64 pixels; of the lanes' own games the newest from which Mario survived for a while. Those before places where
many episodes ended lately are drawn more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.console.nes import NesBatch
from engine.games.mario import rules
from engine.games.mario.task import Stepper
from engine.runtime.stored_arrays import LARGEST_COUNT, check_numbers, stored_array

CAPACITY = 1024
"""Maximum number of stored states of each kind; a stage has 30 to 100 places."""
_SURVIVED = 20
"""Environment steps that Mario must survive after a state before it is stored, so that none is hopeless."""
_DEATHS = 500
"""Number of latest deaths that count."""
_AHEAD = 5
"""Places ahead of a state whose deaths count for it: 320 pixels, a screen and a quarter."""
_DRAWN, _DRAW_EVERY = 32, 16
"""Number of stored states from which the lanes' next episodes draw, and environment steps until others are drawn."""
_NOWHERE = -1


@dataclass
class _Lane:
    """What is known of a lane: its place, and a state that is stored if Mario survives."""

    place: int = _NOWHERE
    candidate: bytes = b""
    candidate_place: int = _NOWHERE
    age: int = 0


class StartStates:
    """Collects start states from the lanes of a console, and lets a share of the episodes of its stepper begin there.

    Args:
        first: number of the stepper's own start states; ours follow.
        reached: share of the episodes that begin at a state that a lane reached, once there is one.
        guided: share of the episodes that begin at a state of a way, once there is one.
        seed: of the random choice. The same seed and games give the same starts.
    """

    def __init__(
        self, console: NesBatch, stepper: Stepper, *, first: int, reached: float, guided: float, seed: int
    ) -> None:
        self._console, self._stepper, self._first, self._seed = console, stepper, first, seed
        self._reached, self._guided = reached, guided
        self._true_starts = list(range(first))
        self._lanes = [_Lane() for _ in range(console.lanes)]
        self._places = dict[int, bytes]()
        """The stored states, by place; by ~place, which is negative, those of a way. The i-th one is start state
        `first + i` of the stepper."""
        self._deaths = np.full(_DEATHS, _NOWHERE, np.int64)
        self._died = self._steps = 0

    def set_true_starts(self, starts: list[int]) -> None:
        """The stepper's own start states from which the other episodes draw one, all with the same probability."""
        self._true_starts = starts
        self._draw()

    @property
    def has_ways(self) -> bool:
        """Whether states of ways are stored."""
        return any(key < 0 for key in self._places)

    def add_ways(self, states: Mapping[int, bytes]) -> None:
        """Store states of ways to the flag, by place (`place_of`)."""
        for place, state in states.items():
            self._store(~place, state)
        self._draw()

    def observe(self, ended: NDArray[np.bool_], died: NDArray[np.bool_]) -> None:
        """Look at the lanes after a step; in those that `ended` [lanes] the next episode has begun."""
        ram = self._console.ram
        places, safe = place_of(ram), rules.stands(ram)
        for lane, known in enumerate(self._lanes):
            if died[lane] and known.place != _NOWHERE:
                self._deaths[self._died % _DEATHS] = known.place
                self._died += 1
            if ended[lane]:
                known.candidate, known.candidate_place = b"", _NOWHERE
            elif known.candidate_place != _NOWHERE:
                known.age += 1
                if known.age == _SURVIVED:
                    self._store(known.candidate_place, known.candidate)
                    known.candidate, known.candidate_place = b"", _NOWHERE
            elif self._reached and safe[lane] and places[lane] != known.place:
                known.candidate, known.candidate_place, known.age = self._console.save(lane), int(places[lane]), 0
            known.place = int(places[lane])
        self._steps += 1
        if self._steps % _DRAW_EVERY == 0:
            self._draw()

    def _store(self, key: int, state: bytes) -> None:
        """Store a state instead of the older one with its key, if there is one, or else if there is room."""
        if key in self._places or sum((other < 0) == (key < 0) for other in self._places) < CAPACITY:
            self._places[key] = state
            self._stepper.set_start(self._first + [*self._places].index(key), state)

    def _draw(self) -> None:
        """Choose the start states of the next episodes."""
        starts = self._true_starts * -(-_DRAWN // len(self._true_starts))
        keys = np.array([*self._places], np.int64)
        random = np.random.default_rng((self._seed, self._steps))
        kinds = ((self._reached, np.flatnonzero(keys >= 0)), (self._guided, np.flatnonzero(keys < 0)))
        stored = [(share, rows) for share, rows in kinds if share and rows.size]
        true_starts = len(starts)
        for share, rows in stored:
            count = max(1, round(true_starts * share / (1 - sum(share for share, _ in stored))))
            weights = self._weights(np.where(keys[rows] < 0, ~keys[rows], keys[rows]))
            starts = starts + (self._first + random.choice(rows, count, p=weights)).tolist()
        self._stepper.start_choices = np.tile(np.array(starts, np.int64), (self._console.lanes, 1))

    def _weights(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities of states at places [n]: one more than the deaths ahead of each, normalised."""
        deaths = np.sort(self._deaths[: min(self._died, _DEATHS)])
        ahead = np.searchsorted(deaths, places + _AHEAD, "right") - np.searchsorted(deaths, places)
        weights: NDArray[np.float64] = (1.0 + ahead) / (1.0 + ahead).sum()
        return weights

    def state(self) -> dict[str, NDArray[Any]]:
        """The state for a checkpoint."""
        return {
            "start_places": np.array([*self._places], np.int64),
            "start_states": _bytes([*self._places.values()]),
            "start_counts": np.array([self._died, self._steps], np.int64),
            "start_deaths": self._deaths.copy(),
            "start_lanes": np.array([[lane.place, lane.candidate_place, lane.age] for lane in self._lanes], np.int64),
            "start_candidates": _bytes([lane.candidate for lane in self._lanes if lane.candidate]),
            "start_choices": self._stepper.start_choices[0].copy(),
        }

    def load_state(self, state: dict[str, NDArray[Any]], first: int) -> None:
        """Load a `state` of a stepper with `first` start states of its own. Raises `ValueError` if it can't be one."""
        places = stored_array(state, "start_places", (None,), np.int64).tolist()
        states = _split(stored_array(state, "start_states", (None,), np.uint8), len(places))
        if len(places) > 2 * CAPACITY or len(set(places)) != len(places):
            raise ValueError("the stored start states are damaged")
        check_numbers("start_places", np.array(places, np.int64), -LARGEST_COUNT, LARGEST_COUNT)
        counts = stored_array(state, "start_counts", (2,), np.int64)
        check_numbers("start_counts", counts, 0, LARGEST_COUNT)
        deaths = stored_array(state, "start_deaths", (_DEATHS,), np.int64)
        pending = stored_array(state, "start_lanes", (len(self._lanes), 3), np.int64)
        check_numbers("ages of candidates", pending[:, 2], 0, _SURVIVED)
        awaited = [lane != _NOWHERE for lane in pending[:, 1].tolist()]
        candidates = _split(stored_array(state, "start_candidates", (None,), np.uint8), sum(awaited))
        for candidate in candidates:  # the others are checked where they are stored
            self._console.read(candidate)
        choices = stored_array(state, "start_choices", (None,), np.int64)
        check_numbers("start_choices", choices, 0, first + len(places) - 1)
        if not choices.size:
            raise ValueError("start_choices is empty")
        self._places.clear()
        for place, saved in zip(places, states, strict=True):
            self._store(place, saved)
        self._died, self._steps = counts.tolist()
        self._deaths[:] = deaths
        rest = iter(candidates)
        self._lanes = [
            _Lane(place, next(rest) if waits else b"", of, age)
            for waits, (place, of, age) in zip(awaited, pending.tolist(), strict=True)
        ]
        if first == self._first:
            self._stepper.start_choices = np.tile(choices, (self._console.lanes, 1))
        else:
            self._draw()


def place_of(ram: NDArray[np.uint8]) -> NDArray[np.int64]:
    """A number [lanes] for where Mario is, from work RAM [lanes, 2048]: stage, area and 64 pixels of it, in which the
    next place to the right has the next number."""
    stage, area, x = (column.astype(np.int64) for column in rules.where(ram))
    return (stage << 32) + (area << 16) + (x >> 6)


def _bytes(states: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(states), np.uint8)


def _split(states: NDArray[np.uint8], count: int) -> list[bytes]:
    """Inverse of `_bytes`, for states of equal size."""
    if count == 0:
        return []
    size, rest = divmod(states.size, count)
    if rest:
        raise ValueError("the stored start states are damaged")
    return [part.tobytes() for part in states.reshape(count, size)]
