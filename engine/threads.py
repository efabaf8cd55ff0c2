"""The one place where threads are budgeted: lanes emulate and torch learns on the same cores."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    torch_threads: int


def thread_budget(lanes: int, emulator: str) -> ThreadBudget:
    """Threads for one process that emulates and learns.

    On our own console learning takes nearly all of the time, so torch may use every core and lanes half of them. nes-py
    takes several times the processor time of learning, so there it is the other way round. Measured on two cores:
    environment steps/s were within 3 % of the best split, and 25 % above the worst.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    half = max(1, cores // 2)
    emulating, learning = (half, cores) if emulator == "native" else (cores, half)
    return ThreadBudget(lane_threads=min(emulating, lanes), torch_threads=learning)
