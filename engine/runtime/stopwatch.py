"""A stopwatch for the sections of a process's loop, in all threads that work for it.

    with stopwatch("act"):  # the block does the work
        ...
    with stopwatch.wait("emulate"):  # the block waits for the work of another thread
        ...

    @stopwatch("insert")  # the whole function
    def insert(...): ...

Marks nest: time counts for the innermost one. A mark costs about 2 microseconds, so put it around work, never inside
loops over samples. `stopwatch` is the stopwatch of the process; create another `Stopwatch` for a loop of your own.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from engine.runtime.files import write_atomically

SECTIONS = (
    "act",  # choose actions: network, exploration
    "emulate",  # step the games; includes drawing for the native console and the boards
    "preprocess",  # stack frames into observations
    "insert",  # store a step in the replay
    "sample",  # draw and gather a batch, set its priorities
    "transfer",  # move a batch to the learning device and convert it to the network's precision
    "forward",  # both networks and the loss
    "backward",
    "optimise",  # clip the gradients, optimiser step
    "synchronise",  # target network, weights and gradients between processes
    "log",  # statistics, reports, commands
    "evaluate",
    "save",  # checkpoints
    "wait",  # idle until another process makes progress
)
SHARED = ("transfer", "forward", "backward")
"""Sections of a batch's shares, which threads compute side by side."""
SHARES = "shares"
"""For `Stopwatch.wait`: waiting for the sections of `SHARED`. Its time is split as other threads spend theirs."""
_MAX_EVENTS = 200_000  # recorded per thread; later ones are dropped
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Stopwatch:
    """Wall and CPU time of each section, also of loops outside the program.

    >>> from engine.monitoring import Stopwatch, split
    >>> stopwatch = Stopwatch(("collect", "learn"))
    >>> before = stopwatch.row()
    >>> for _ in range(10):
    ...     with stopwatch("collect"):
    ...         _ = sum(range(10_000))
    ...     with stopwatch("learn"):
    ...         _ = sum(range(30_000))
    >>> shares = split(before, stopwatch.row(), names=stopwatch.sections).cpu  # a pause of the machine does not count
    >>> 0 < shares["collect"] < shares["learn"] < 1  # about 0.25 and 0.75
    True

    Args:
        sections: names of the sections.
        loop: the thread whose wall time is split (default: the main thread); the others work for it.
    """

    def __init__(self, sections: Sequence[str] = SECTIONS, loop: threading.Thread | None = None) -> None:
        self.sections = tuple(sections)
        self.recording = False
        """Whether begin and end of every section are kept for `recorded`."""
        self._loop = (loop or threading.main_thread()).ident
        slots = len(self.sections)
        self._does = {section: _Mark(self, slot) for slot, section in enumerate(self.sections)}
        self._waits = {section: _Mark(self, slots + slot) for slot, section in enumerate((*self.sections, SHARES))}
        self._threads: list[_Thread] = []
        self._local = threading.local()

    def __call__(self, section: str) -> _Mark:
        """A context manager or decorator: this thread works on a section."""
        return self._does[section]

    def wait(self, section: str) -> _Mark:
        """A context manager or decorator: this thread waits for other threads that work on a section."""
        return self._waits[section]

    def row(self) -> list[float]:
        """A flat list of seconds; `engine.monitoring.split` reads the difference of two of them.

        It holds the time now; for each section the wall time that the loop's thread worked on it, and waited for it
        (then for `SHARES`); the wall time of all threads; the CPU time of all threads.
        """
        n = len(self.sections)
        does, waits, all_do, cpu = [0] * n, [0] * (n + 1), [0] * n, [0] * n
        for thread in tuple(self._threads):
            for slot in range(n):
                all_do[slot] += thread.wall[slot]
                cpu[slot] += thread.cpu[slot] + thread.cpu[n + slot]
            if thread.ident == self._loop:
                does, waits = thread.wall[:n], thread.wall[n:]
        return [time.perf_counter(), *(ns / 1e9 for numbers in (does, waits, all_do, cpu) for ns in numbers)]

    def recorded(self) -> list[tuple[int, str, str, int, int]]:
        """Sections recorded since the last call, of all threads: the thread, its name, the section, and its begin and
        end in nanoseconds of CLOCK_MONOTONIC."""
        names = (*self.sections, *(f"wait for {section}" for section in (*self.sections, SHARES)))
        found = []
        for thread in tuple(self._threads):
            events, thread.events = thread.events, []
            found += [(thread.ident, thread.name, names[slot], begin, end) for slot, begin, end in events]
        return found

    def _register_thread(self) -> _Thread:
        thread = self._local.thread = _Thread(2 * len(self.sections) + 1)
        self._threads.append(thread)
        return thread


class _Thread:
    """Times of one thread. Only that thread writes them; any thread may read them."""

    __slots__ = ("cpu", "cpu_since", "events", "ident", "name", "stack", "wall", "wall_since")

    def __init__(self, slots: int) -> None:
        current = threading.current_thread()
        self.ident, self.name = current.ident or 0, current.name
        self.wall, self.cpu = [0] * slots, [0] * slots  # nanoseconds
        self.stack: list[tuple[int, int]] = []  # (slot, begin) of the open marks
        self.wall_since = self.cpu_since = 0
        self.events: list[tuple[int, int, int]] = []


class _Mark:
    __slots__ = ("_slot", "_watch")

    def __init__(self, watch: Stopwatch, slot: int) -> None:
        self._watch, self._slot = watch, slot

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorate a function: its whole body is the block."""

        @functools.wraps(function)
        def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return marked

    def __enter__(self) -> None:
        try:
            thread: _Thread = self._watch._local.thread
        except AttributeError:
            thread = self._watch._register_thread()
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        if thread.stack:
            slot = thread.stack[-1][0]
            thread.wall[slot] += wall - thread.wall_since
            thread.cpu[slot] += cpu - thread.cpu_since
        thread.stack.append((self._slot, wall))
        thread.wall_since, thread.cpu_since = wall, cpu

    def __exit__(self, *_: object) -> None:
        thread: _Thread = self._watch._local.thread
        # In this order: if the thread loses its core in the first call, the time still counts for the section.
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        slot, begin = thread.stack.pop()
        thread.wall[slot] += wall - thread.wall_since
        thread.cpu[slot] += cpu - thread.cpu_since
        thread.wall_since, thread.cpu_since = wall, cpu
        if self._watch.recording and len(thread.events) < _MAX_EVENTS:
            thread.events.append((slot, begin, wall))


stopwatch = Stopwatch()
"""The stopwatch of this process."""


TRACE_PARTS = "trace-*.part.json"
"""Files of recorded sections in Chrome's trace event format, for Perfetto (https://ui.perfetto.dev) and
chrome://tracing. Every process of a run writes one into its working directory, which is the run's folder."""


def record_until(watch: Stopwatch, until: float, process: str) -> None:
    """Record until CLOCK_MONOTONIC reaches `until` (seconds), then write this process's part. Call it once per
    iteration."""
    if time.monotonic() < until:
        watch.recording = True
    elif watch.recording:
        watch.recording = False
        write_part(watch, Path(TRACE_PARTS.replace("*", str(os.getpid()))), process)


def write_part(watch: Stopwatch, path: Path, process: str) -> None:
    """Write the sections that a stopwatch has recorded; atomic, so `path` is complete or absent."""
    pid, events = os.getpid(), list[dict[str, Any]]()
    threads: dict[int, str] = {}
    for thread, name, section, begin_ns, end_ns in watch.recorded():
        threads[thread] = name
        events.append({
            "name": section, "cat": "section", "ph": "X", "pid": pid, "tid": thread % 2**31,
            "ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000,
        })  # fmt: skip
    named = [{"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": process}}]
    for thread, name in threads.items():
        named.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": thread % 2**31, "args": {"name": name}})
    write_atomically(path, json.dumps([*named, *events]).encode())
