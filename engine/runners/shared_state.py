"""State that a run's processes share: orders from the coordinator; counts, heartbeats and episodes from each member.

On several machines each has a copy, and `engine.runners.rank` keeps them up to date.

Every number has exactly one writer, so there are no locks, no writer waits for a reader, and a killed process leaves
nothing inconsistent. A number that announces others is written after them and read before them, with a `fence` between.
Orders lie here and not in queues, because they are states (paused, a learning rate): a member that replaces another one
finds them, and a hung member can't block the coordinator. A new member continues its predecessor's counts.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from typing import Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from engine.buffers.memory import HostMemory, Layout
from engine.config.run_config import RunConfig
from engine.envs.episode import EpisodeRecord
from engine.protocol.commands import Tunable
from engine.runtime.processes import fence
from engine.runtime.stopwatch import record_until, stopwatch

HEARTBEAT_S = 4.0
"""Seconds between two heartbeats."""
FIRST_S = 15.0
"""The same for the first step and the first update, in which devices load their libraries; kernels are compiled before
(`engine.runners.learning.factory`). Must be less than the host's own limit (`SILENCE_LIMIT_S` in
`engine.runners.links`), since a coordinator may wait for this process."""
_SAMPLE_S = 0.005
"""For each sample of an update: about twenty times what one core needs."""


@runtime_checkable
class StartsSlowly(Protocol):
    """A game whose lanes may take up to a second each to begin an episode, and compile nothing for it."""

    def starts_slowly(self, config: RunConfig) -> bool:
        """Return whether those of a run do."""


def starts_slowly(config: RunConfig) -> bool:
    """Return whether each lane of a run takes up to a second to begin an episode."""
    game = config.game_info
    return isinstance(game, StartsSlowly) and game.starts_slowly(config)


def step_s(config: RunConfig) -> float:
    """Upper limit for the seconds between two steps of a member."""
    return HEARTBEAT_S + (config.parallel_envs if starts_slowly(config) else 0)


def update_s(batch_size: int) -> float:
    """Upper limit for the seconds that an update takes."""
    return HEARTBEAT_S + _SAMPLE_S * batch_size


TUNABLE: tuple[str, ...] = get_args(Tunable)

_CAPACITY = 16_384  # unread episodes per member; short ones pile up while a checkpoint is written
_NOTE_EVERY_S = 0.2
_RUN, _PAUSE, _STOP = 0, 1, 2


class SharedState:
    """State shared by `members` processes. A coordinator that also plays is member 0."""

    def __init__(self, members: int, memory: HostMemory | None = None) -> None:
        self.members = members
        layout: Layout = {
            "order": ((4,), np.int64),  # state, env_steps of the run, limit on the members' env_steps, updates
            "screen_fps": ((1,), np.float64),
            "level": ((1,), np.float64),  # of the curriculum
            "beta": ((1,), np.float64),  # of the coordinator's replay
            "tuned": ((len(TUNABLE),), np.float64),
            "tunings": ((len(TUNABLE),), np.int64),  # how often each was set
            "steps_of": ((members,), np.int64),  # environment steps
            "frames_of": ((members,), np.int64),
            "episodes_of": ((members,), np.int64),  # ended
            "updates_of": ((members,), np.int64),  # in the weights that it uses
            "due": ((members,), np.float64),  # CLOCK_MONOTONIC of the latest next heartbeat; 0: not ready
            "waited": ((members,), np.float64),  # seconds spent waiting for others
            "times": ((members, len(stopwatch.row())), np.float64),  # `Stopwatch.row`
            "trace": ((1,), np.float64),  # CLOCK_MONOTONIC until which sections are recorded
            "episodes": ((members, _CAPACITY, EpisodeRecord.NUMBERS), np.float64),
        }
        arrays = (memory or HostMemory()).arrays(layout)
        self._order, self._screen_fps, self._tuned = arrays["order"], arrays["screen_fps"], arrays["tuned"]
        self._tunings, self._level, self._beta = arrays["tunings"], arrays["level"], arrays["beta"]
        self.steps_of, self.frames_of = arrays["steps_of"], arrays["frames_of"]
        self.episodes_of, self.updates_of = arrays["episodes_of"], arrays["updates_of"]
        self.due, self.waited, self.times, self._trace = (arrays[name] for name in ("due", "waited", "times", "trace"))
        self._episodes = arrays["episodes"]
        self._noted_at = 0.0
        self._read = np.zeros(members, np.int64)  # episodes of each member that this process has read

    # ------------------------------------------------------------------------------------------ the coordinator's

    def open(self, level: float = 0.0) -> None:
        """Initialise, before members start: no setting changed, no limit, the curriculum at `level`."""
        self._tuned[:] = np.nan
        self.publish_level(level)
        self.limit_env_steps(None)

    def pause(self) -> None:
        self._order[0] = _PAUSE

    def resume(self) -> None:
        self._order[0] = _RUN

    def stop(self) -> None:
        self._order[0] = _STOP

    def tune(self, name: Tunable, value: float) -> None:
        place = TUNABLE.index(name)
        self._tuned[place] = value
        fence()
        self._tunings[place] += 1  # written last, so a reader that sees it finds the value

    def publish_level(self, level: float) -> None:
        """Publish the curriculum's level."""
        self._level[0] = level

    def show_screen(self, fps: float) -> None:
        """Request frames of member 0's first lane; 0 for none."""
        self._screen_fps[0] = fps

    def trace(self, seconds: float) -> None:
        """Let every process record its stopwatch sections for `seconds`."""
        self._trace[0] = time.monotonic() + seconds

    def publish(self, env_steps: int, updates: int, beta: float) -> None:
        """Publish the run's progress."""
        self._order[1], self._order[3], self._beta[0] = env_steps, updates, beta

    def limit_env_steps(self, env_steps: int | None) -> None:
        """Limit the sum of the members' environment steps; None: no limit."""
        self._order[2] = np.iinfo(np.int64).max if env_steps is None else env_steps

    def new_episodes(self) -> Iterator[tuple[int, EpisodeRecord]]:
        """(member, episode) for every episode recorded since the last call."""
        for member in range(self.members):
            count = int(self.episodes_of[member])
            fence()
            for number in range(max(int(self._read[member]), count - _CAPACITY), count):
                yield member, EpisodeRecord.from_numbers(self._episodes[member, number % _CAPACITY].tolist())
            self._read[member] = count

    @property
    def played(self) -> int:
        """Environment steps of all members since `open`. A replay read after this holds them."""
        played = int(self.steps_of.sum())
        fence()
        return played

    @property
    def frames(self) -> int:
        """Emulated frames of all members since `open`."""
        return int(self.frames_of.sum())

    # ------------------------------------------------------------------------------------------ every process's

    @property
    def paused(self) -> bool:
        return bool(self._order[0] == _PAUSE)

    @property
    def stopped(self) -> bool:
        return bool(self._order[0] == _STOP)

    @property
    def env_steps(self) -> int:
        """Of the run, as last published."""
        return int(self._order[1])

    @property
    def updates(self) -> int:
        """Of the run, as last published."""
        return int(self._order[3])

    @property
    def beta(self) -> float:
        """Of the run, as last published."""
        return float(self._beta[0])

    @property
    def below_limit(self) -> bool:
        """Return whether members are below the limit set by `limit_env_steps`."""
        return self.env_steps_left > 0

    @property
    def env_steps_left(self) -> int:
        """Environment steps left until the limit set by `limit_env_steps`; negative beyond it."""
        return int(self._order[2]) - self.played

    @property
    def screen_fps(self) -> float:
        return float(self._screen_fps[0])

    @property
    def level(self) -> float:
        """Level of the run's curriculum; 0 without one."""
        return float(self._level[0])

    def tuned(self, name: Tunable) -> float | None:
        """The value a setting was changed to; None if it was not changed."""
        value = float(self._tuned[TUNABLE.index(name)])
        return None if np.isnan(value) else value

    def tunings(self, name: Tunable) -> int:
        """Return how often a setting was changed. Setting the same value again counts, since beta anneals in between. A
        value read after this is at least as new."""
        tunings = int(self._tunings[TUNABLE.index(name)])
        fence()
        return tunings

    @property
    def changes(self) -> int:
        """Return how often any setting was changed. What is read after this is at least as new."""
        changes = int(self._tunings.sum())
        fence()
        return changes

    # ------------------------------------------------------------------------------------------ between machines

    def orders(self) -> NDArray[np.float64]:
        """The coordinator's orders and settings, for `follow` on another machine."""
        trace_s = max(0.0, float(self._trace[0]) - time.monotonic())
        state, env_steps, _, updates = self._order
        numbers = [state, env_steps, updates, self._screen_fps[0], self._level[0], self._beta[0], trace_s]
        return np.concatenate([np.array(numbers, np.float64), self._tuned, self._tunings])

    def follow(self, orders: NDArray[np.float64]) -> None:
        """Take over the coordinator's `orders`."""
        (state, env_steps, updates, fps, level, beta, trace_s), tuned = orders[:7], orders[7:]
        self._order[[0, 1, 3]] = state, env_steps, updates
        self._screen_fps[0], self._level[0], self._beta[0] = fps, level, beta
        self._trace[0] = time.monotonic() + trace_s
        self._tuned[:], self._tunings[:] = tuned[: len(TUNABLE)], tuned[len(TUNABLE) :]

    def row(self, member: int) -> NDArray[np.float64]:
        """A member's counts and times, for `set_row` on another machine."""
        counts = self.steps_of[member], self.frames_of[member], self.updates_of[member]
        return np.array([*counts, self.waited[member], *self.times[member]], np.float64)

    def set_row(self, member: int, row: NDArray[np.float64]) -> None:
        """Take over the `row` of a member on another machine, which is its heartbeat."""
        self.steps_of[member], self.frames_of[member], self.updates_of[member] = row[:3]
        self.waited[member], self.times[member] = row[3], row[4:]
        self.beat(member)

    def episodes_after(self, member: int, count: int) -> NDArray[np.float64]:
        """A member's episodes [n, numbers] but the first `count`; at most as many as are kept."""
        ended = int(self.episodes_of[member])
        fence()
        first = max(count, ended - _CAPACITY)
        kept: NDArray[np.float64] = self._episodes[member, np.arange(first, ended) % _CAPACITY]
        return kept

    def add_episodes(self, member: int, episodes: NDArray[np.float64]) -> None:
        """Take over episodes of a member on another machine."""
        for numbers in episodes:
            self._add_episode(member, numbers)

    # ------------------------------------------------------------------------------------------ a member's own

    def beat(self, member: int, within_s: float = HEARTBEAT_S) -> None:
        """Give a heartbeat and promise the next one within `within_s` seconds."""
        self.due[member] = time.monotonic() + within_s

    def publish_times(self, member: int) -> None:
        """Publish where this process's time went, and record a trace if one is requested. Call it each iteration."""
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_EVERY_S:
            self._noted_at = now
            self.times[member] = stopwatch.row()
        self.record_trace()

    def record_trace(self) -> None:
        """Record this process's sections if a trace is requested."""
        record_until(stopwatch, float(self._trace[0]), multiprocessing.current_process().name)

    def record(self, member: int, env_steps: int, frames: int, episodes: list[EpisodeRecord]) -> None:
        """Record steps played, which the replay must hold by now, and episodes that ended."""
        for episode in episodes:
            self._add_episode(member, episode.numbers())
        self.frames_of[member] += frames
        fence()
        self.steps_of[member] += env_steps

    def _add_episode(self, member: int, numbers: Sequence[float] | NDArray[np.float64]) -> None:
        count = self.episodes_of[member]
        self._episodes[member, count % _CAPACITY] = numbers
        fence()
        self.episodes_of[member] = count + 1  # written last, so a reader that sees it finds the episode
