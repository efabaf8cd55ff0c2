"""The thread budget of a process: lanes emulate and torch learns on the same cores."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""Bytes above which a block gets a mapping of its own, in order of preference: glibc before 2.35 rejects more than
32 MiB."""
CGROUP = Path("/sys/fs/cgroup")
_MIN_SHARE = 32
"""Samples of a batch below which another learning thread does not pay."""


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    learn_threads: int
    """Threads that split a batch among them."""
    torch_threads: int
    """OpenMP threads in each of them."""


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
    )


def available_cores(cgroup: Path = CGROUP) -> int:
    """Cores that this process may use. The CPU quota of a container (cgroup v2) counts, rounded up to whole cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, (cgroup / "cpu.max").read_text("ascii").split())  # microseconds, or the word max
    except (OSError, ValueError):
        return cores
    return min(cores, max(1, math.ceil(quota / period)))


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
