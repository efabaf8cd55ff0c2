"""The one place where threads are budgeted: lanes emulate and torch learns on the same cores."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    torch_threads: int


def thread_budget(lanes: int) -> ThreadBudget:
    """Threads for one process that emulates and learns.

    Emulating this game on nes-py takes about four times the processor time of learning from it, so lanes may use every
    core; torch takes the half that keeps its OpenMP threads from waiting for one another on a busy core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadBudget(lane_threads=min(cores, lanes), torch_threads=max(1, cores // 2))
