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

    Lanes on our own console and torch get half of the cores each: torch on all of them is up to a quarter faster
    on two idle cores, but its OpenMP threads wait for one another so badly once another program wants a core that
    training all but stops. nes-py takes several times the processor time of learning, so its lanes may use every core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    half = max(1, cores // 2)
    return ThreadBudget(lane_threads=min(half if emulator == "native" else cores, lanes), torch_threads=half)
