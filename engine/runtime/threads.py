"""The one place where threads are budgeted: lanes emulate and torch learns on the same cores."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_MMAP_THRESHOLDS = (1 << 30, 1 << 25)
"""Bytes from which a block is mapped on its own: glibc before 2.35 refuses more than 32 MiB."""
CGROUP = Path("/sys/fs/cgroup")
_SMALLEST_SHARE = 64
"""Samples of a batch that are worth a learning thread of their own."""


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    learn_threads: int
    """Threads that share a batch, each with its part of it."""
    torch_threads: int
    """OpenMP threads inside each of those."""


def thread_budget(
    lanes: int, batch_size: int = 1, processes: int = 1, most_learners: int | None = None
) -> ThreadBudget:
    """Threads for each of `processes` that emulate and learn; of those that share a batch at most `most_learners`.

    Lanes meet once a step and learning threads once an update, so both may use every core. torch's own OpenMP threads
    meet at every operation and spin while they wait: one program beside them that wants a core, and training all but
    stops. So they are used only where there are more cores than a batch has shares, and then on half of the cores.
    """
    cores = max(1, available_cores() // processes)
    learners = min(cores, max(1, batch_size // _SMALLEST_SHARE), most_learners or cores)
    return ThreadBudget(
        lane_threads=min(cores, lanes),
        learn_threads=learners,
        torch_threads=max(1, cores // 2 // learners),
    )


def available_cores(cgroup: Path = CGROUP) -> int:
    """Cores that this process may use; of a container (cgroup v2) that may use parts of a core only, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, (cgroup / "cpu.max").read_text("ascii").split())  # microseconds, or the word max
    except (OSError, ValueError):
        return cores
    return min(cores, max(1, math.ceil(quota / period)))


def keep_freed_memory(mallopt: Callable[[int, int], int] | None = None) -> None:
    """Let the C library keep what is freed instead of handing it back to the system at once (glibc only).

    An update frees and takes tens of megabytes again; getting them from the system anew costs a tenth of the time.
    `mallopt` is the C library's, which gives 0 where it refuses.
    """
    if mallopt is None:
        try:
            mallopt = ctypes.CDLL("libc.so.6").mallopt
        except (OSError, AttributeError):
            return
    # A trim threshold alone would do harm: any accepted option ends glibc's own adjustment of the mmap threshold,
    # which then stays at 128 KiB.
    if any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in _MMAP_THRESHOLDS):
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
