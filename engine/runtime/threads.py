"""Processor and threads: the cores that a process may use, its thread budget, and threads that do a piece of work.

Lanes emulate and torch learns on the same cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import math
import os
import platform
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import psutil

from engine.runtime.files import is_private, open_lock, way_in

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""Bytes above which a block gets a mapping of its own, in order of preference: glibc before 2.35 rejects more than
32 MiB."""
CGROUP = Path("/sys/fs/cgroup")
_LOOK_S = 0.2
"""Seconds for which the load of cores is measured."""
_TURNS = 32
"""Restricted runs that a core can have before further ones are no longer counted."""
_MIN_SHARE = 64
"""Samples of a batch below which another learning thread does not pay: threads take turns at Python's lock."""


_locks: list[BinaryIO] = []
"""On the cores that this process has claimed, as long as it lives."""


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    learn_threads: int
    """Threads that split a batch among them."""
    torch_threads: int
    """OpenMP threads in each of them."""
    targets_ahead: bool
    """Whether one thread computes the targets of a batch while others choose actions and learn."""


def thread_budget(lanes: int, batch_size: int = 1, processes: int = 1, max_learners: int | None = None) -> ThreadBudget:
    """Threads of each of `processes` that emulate and learn, with at most `max_learners` learning threads.

    Lanes synchronise once per step and learning threads once per update, so both may use every core. torch's own OpenMP
    threads synchronise at every operation and spin while they wait, so a single other busy program nearly stops
    training. They are used only if there are more cores than shares of a batch, and then on half of the cores.
    """
    cores = max(1, available_cores() // processes)
    learners = min(cores, max(1, batch_size // _MIN_SHARE), max_learners or cores)
    return ThreadBudget(
        lane_threads=min(cores, lanes),
        learn_threads=learners,
        torch_threads=max(1, cores // 2 // learners),
        targets_ahead=cores > 1,
    )


def available_cores(cgroup: Path = CGROUP) -> int:
    """Cores that this process may use. The CPU quota of a container counts, rounded up to whole cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return cores if quota is None else min(cores, max(1, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Cores' worth of time that a container may use; None if it has no limit."""
    files = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # versions 2 and 1, in microseconds
    for names in files:
        with contextlib.suppress(OSError, ValueError):  # such as the word max
            quota, period = map(int, " ".join((cgroup / name).read_text("ascii") for name in names).split())
            return quota / period if quota > 0 else None  # version 1 writes -1 for no limit
    return None


def use_at_most(cores: int | None) -> None:
    """Restrict this process, and those that it will start, to so many of the cores that it may use: those that no other
    restricted run of this user has, and of them the least busy ones. None: no restriction.

    All threads are bounded by this, also those of libraries.
    """
    if cores is None:
        return
    allowed = os.sched_getaffinity(0)
    busy = psutil.cpu_percent(_LOOK_S, percpu=True)
    chosen = _claimed(sorted(allowed, key=lambda core: busy[core] if core < len(busy) else 0.0), cores)
    for thread in psutil.Process().threads():  # NumPy has started some when it was imported
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, chosen)


def _claimed(cores: list[int], count: int) -> list[int]:
    """`count` of the cores: those that the fewest other restricted runs have claimed, in their order. Runs that start
    together find all cores equally busy. A run claims a core with a lock, which the kernel releases when it ends; each
    core has several, which are taken in turn, so that each core gets one run before any gets a second."""
    chosen = list[int]()
    with contextlib.suppress(OSError):  # no such folder, or no locks in it
        folder = Path(tempfile.gettempdir()) / f"mario-tui-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder) and not way_in(folder):
            for turn, core in itertools.product(range(_TURNS), cores):
                if len(chosen) < count and core not in chosen and _locks_core(folder / f"core-{core}-{turn}.lock"):
                    chosen.append(core)
    return [*chosen, *(core for core in cores if core not in chosen)][:count]


def _locks_core(path: Path) -> bool:
    """Lock a file until this process ends. Returns False if another one holds it."""
    lock = open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    _locks.append(lock)
    return True


def keep_freed_memory(mallopt: Callable[[int, int], int] | None = None) -> None:
    """Let the C library keep freed memory instead of returning it to the system at once (glibc only).

    An update frees and allocates tens of megabytes; getting them from the system again costs a tenth of its time.
    `mallopt` is the C library's function, which returns 0 for a rejected value; it is an argument for tests.
    """
    if mallopt is None:
        try:
            mallopt = ctypes.CDLL("libc.so.6").mallopt
        except (OSError, AttributeError):
            return
    # A trim threshold alone would do harm: setting any option stops glibc from adjusting the mmap threshold, which then
    # stays at 128 KiB.
    if any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _MMAP_THRESHOLDS):
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def processor_name() -> str:
    """The processor's model, or its architecture where Linux does not report one."""
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine_cpu_seconds() -> float:
    """CPU time so far of all programs on the machine, of any priority, and of the kernel."""
    times = psutil.cpu_times()
    idle = sum(getattr(times, name, 0.0) for name in ("idle", "iowait"))
    counted_twice = sum(getattr(times, name, 0.0) for name in ("guest", "guest_nice"))  # also in user and nice
    return float(sum(times) - idle - counted_twice)


def has_native_bf16() -> bool:
    """Return whether the CPU has bfloat16 instructions; without them bfloat16 is emulated."""
    flags = next((line.split() for line in _cpuinfo() if line.startswith("flags")), [])  # Linux alone tells
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time so far of a process and of those that it has started, as far as they have not ended."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system
    return total


@functools.cache
def _cpuinfo() -> list[str]:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
    return []


Work = Callable[[int], object]


class Crew:
    """`others` threads beside the one that calls it, which do a piece of work together again and again. They end when
    it is no longer used.

    Handing work to a `ThreadPoolExecutor` takes tens of microseconds for each thread, one after the other; a step of
    many lanes on many cores is done in a millisecond.
    """

    def __init__(self, others: int, name: str) -> None:
        self._begin: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in range(others)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._working = 0  # threads that have not answered
        for number, begin in enumerate(self._begin, 1):
            threading.Thread(
                target=_serve, args=(number, begin, self._done), name=f"{name}_{number}", daemon=True
            ).start()
        weakref.finalize(self, _end, self._begin)

    def __call__(self, work: Work) -> None:
        """Call `work(0)` in this thread and `work(1)`, `work(2)`, ... in the others. Returns when all of them have
        returned, and raises what one of them raised."""
        errors = list[BaseException]()
        try:
            for begin in self._begin:
                self._working += 1
                begin.put(work)
            work(0)
        finally:  # Ctrl-C must not leave a thread behind that still works
            while self._working:
                error = self._done.get()
                self._working -= 1
                if error is not None:
                    errors.append(error)
        if errors:
            raise errors[0]


def _serve(number: int, begin: SimpleQueue[Work | None], done: SimpleQueue[BaseException | None]) -> None:
    while (work := begin.get()) is not None:
        try:
            work(number)
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del work  # it must not keep alive what it belongs to


def _end(begin: list[SimpleQueue[Work | None]]) -> None:
    for queue in begin:
        queue.put(None)


class GraceTime:
    """Grace time for what is watched: whatever stalled the watcher (a suspended machine, say) stalled that, too.

    Args:
        limit_s: seconds of silence that the watcher allows.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._until = limit_s, -math.inf
        self._looked_at = time.monotonic()

    def look(self) -> tuple[float, bool]:
        """For a watcher that looks again and again: the time to compare deadlines with, and whether the watched still
        have time. Whenever the watcher is stalled, either this time is before the stall or the next look sees it."""
        before, self._looked_at = self._looked_at, time.monotonic()
        return self._looked_at, self.granted(self._looked_at - before)

    def granted(self, stalled_s: float) -> bool:
        """Return whether the watched still have time, given that the watcher was stalled for `stalled_s` seconds."""
        now = time.monotonic()
        if stalled_s > max(1.0, self._limit_s / 4):
            self._until = now + self._limit_s
        return now <= self._until


class UserCalls:
    """This process's calls of a user's code, such as an environment: each may take any time up to a limit."""

    def __init__(self) -> None:
        self.limit_s = 0.0
        """Seconds that a call may take; 0 while there is no such code. Every promise of a heartbeat is longer by it."""
        self.step_s = 0.0
        """Seconds that a step of all lanes may take at most: a call of `step` and one of `reset` in each."""
        self.begun_at = -math.inf
        """CLOCK_MONOTONIC of the newest call, or one less than a second before it."""
        self.beat: Callable[[], object] = lambda: None
        """Tells those who watch this process that it lives; called between two calls, at most once a second."""
        self.fail: Callable[[str], object] = lambda text: None
        """Called from a thread for a call beyond the limit, with a line about it; is to end the process."""

    def begin(self, now: float) -> None:
        """A call begins."""
        if now - self.begun_at >= 1:
            self.begun_at = now
            self.beat()


user_calls = UserCalls()


CLOSE_S = 5.0
"""For the end of what is not needed any more, such as an environment."""


def call_within(seconds: float, call: Callable[[], object]) -> None:
    """Call what may hang in a thread, and wait for its end, but no longer than that."""
    calling = threading.Thread(target=call, name="bounded call", daemon=True)
    calling.start()
    calling.join(seconds)
