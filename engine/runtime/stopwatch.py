"""Where a process's time goes: a stopwatch for the stages of its loop, in every thread that works for it.

    with stages("act"):  # what is done in the block
        ...
    with stages.wait("emulate"):  # the block waits for what another thread does
        ...

    @stages("insert")  # all of a function
    def insert(...): ...

Marks nest: time counts for the innermost one. A mark takes about 2 microseconds, so it stands around work, never inside
of loops over samples. `stages` is the process's own stopwatch; a loop of your own can have its own `Stopwatch`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

STAGES = (
    "act",  # choose actions: network, exploration
    "emulate",  # step the games; our console and the boards draw their pictures in it, too
    "preprocess",  # stack pictures into observations
    "insert",  # store a step in the replay
    "sample",  # draw and gather a batch, set its priorities
    "transfer",  # a batch to where it is learned from, in the network's precision
    "forward",  # both networks, the loss
    "backward",
    "optimise",  # clip the gradients, take the step
    "synchronise",  # target network, weights and gradients between processes
    "log",  # books, reports, commands
    "evaluate",
    "save",  # checkpoints
    "wait",  # nothing to do until another process is further
)
SHARED = ("transfer", "forward", "backward")
SHARES = "shares"
"""To be waited for: what other threads do of `SHARED`, in the proportions in which they do it."""
_ROOM = 200_000  # recorded events of a thread
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Recorded:
    """A stage from its beginning to its end, in nanoseconds of CLOCK_MONOTONIC."""

    thread: int
    name: str
    stage: str
    begin_ns: int
    end_ns: int


class Stopwatch:
    """Wall and processor time of each stage.

    Args:
        stages: their names.
        loop: the thread whose wall time is split (default: the main thread); others work for it.
    """

    def __init__(self, stages: Sequence[str] = STAGES, loop: threading.Thread | None = None) -> None:
        self.stages = tuple(stages)
        self.recording = False
        """Whether every stage's begin and end is kept for `recorded`."""
        self._loop = (loop or threading.main_thread()).ident
        slots = len(self.stages)
        self._does = {stage: _Mark(self, slot) for slot, stage in enumerate(self.stages)}
        self._waits = {stage: _Mark(self, slots + slot) for slot, stage in enumerate((*self.stages, SHARES))}
        self._threads: list[_Thread] = []
        self._local = threading.local()

    def __call__(self, stage: str) -> _Mark:
        """A context manager: this thread is at a stage."""
        return self._does[stage]

    def wait(self, stage: str) -> _Mark:
        """A context manager: this thread waits for others that are at a stage."""
        return self._waits[stage]

    def row(self) -> list[float]:
        """Seconds: now; then for each stage what the loop's thread did, and waited for (the shares behind); what all
        threads did; their processor time. A difference of two is read by `split`."""
        n = len(self.stages)
        does, waits, all_do, cpu = [0] * n, [0] * (n + 1), [0] * n, [0] * n
        for thread in tuple(self._threads):
            for slot in range(n):
                all_do[slot] += thread.wall[slot]
                cpu[slot] += thread.cpu[slot] + thread.cpu[n + slot]
            if thread.ident == self._loop:
                does, waits = thread.wall[:n], thread.wall[n:]
        return [time.perf_counter(), *(ns / 1e9 for numbers in (does, waits, all_do, cpu) for ns in numbers)]

    def recorded(self) -> list[Recorded]:
        """What was recorded since the last call."""
        names = (*self.stages, *(f"wait for {stage}" for stage in (*self.stages, SHARES)))
        found = []
        for thread in tuple(self._threads):
            events, thread.events = thread.events, []
            found += [Recorded(thread.ident, thread.name, names[slot], begin, end) for slot, begin, end in events]
        return found

    def _meet(self) -> _Thread:
        thread = self._local.thread = _Thread(2 * len(self.stages) + 1)
        self._threads.append(thread)
        return thread


class _Thread:
    """One thread's account; only it writes, anybody may read."""

    __slots__ = ("cpu", "cpu_since", "events", "ident", "name", "stack", "wall", "wall_since")

    def __init__(self, slots: int) -> None:
        current = threading.current_thread()
        self.ident, self.name = current.ident or 0, current.name
        self.wall, self.cpu = [0] * slots, [0] * slots  # nanoseconds
        self.stack: list[tuple[int, int]] = []  # (slot, begin) of the marks that it is in
        self.wall_since = self.cpu_since = 0
        self.events: list[tuple[int, int, int]] = []


class _Mark:
    __slots__ = ("_slot", "_watch")

    def __init__(self, watch: Stopwatch, slot: int) -> None:
        self._watch, self._slot = watch, slot

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """As a decorator: the whole function is the block."""

        @functools.wraps(function)
        def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return marked

    def __enter__(self) -> None:
        try:
            thread: _Thread = self._watch._local.thread
        except AttributeError:
            thread = self._watch._meet()
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        if thread.stack:
            slot = thread.stack[-1][0]
            thread.wall[slot] += wall - thread.wall_since
            thread.cpu[slot] += cpu - thread.cpu_since
        thread.stack.append((self._slot, wall))
        thread.wall_since, thread.cpu_since = wall, cpu

    def __exit__(self, *_: object) -> None:
        thread: _Thread = self._watch._local.thread
        # In this order: who loses the core in the first call is still in the stage.
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        slot, begin = thread.stack.pop()
        thread.wall[slot] += wall - thread.wall_since
        thread.cpu[slot] += cpu - thread.cpu_since
        thread.wall_since, thread.cpu_since = wall, cpu
        if self._watch.recording and len(thread.events) < _ROOM:
            thread.events.append((slot, begin, wall))


stages = Stopwatch()
"""This process's own."""
