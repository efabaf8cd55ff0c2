"""The one place where threads are budgeted: lanes emulate and torch learns on the same cores."""

from __future__ import annotations

import os
from dataclasses import dataclass

_SMALLEST_SHARE = 64
"""Samples of a batch that are worth a learning thread of their own."""


@dataclass(frozen=True)
class ThreadBudget:
    lane_threads: int
    learn_threads: int
    """Threads that share a batch, each with its part of it."""
    torch_threads: int
    """OpenMP threads inside each of those."""


def thread_budget(lanes: int, emulator: str, batch_size: int = 1) -> ThreadBudget:
    """Threads for one process that emulates and learns.

    Learning threads meet once an update. torch's own OpenMP threads meet at every operation and spin while they wait:
    one program beside them that wants a core, and training all but stops. So they are used only where there are more
    cores than a batch has shares, and then on half of the cores. Lanes on our own console take half of the cores;
    nes-py takes several times the processor time of learning, so its lanes may use every core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    learners = min(cores, max(1, batch_size // _SMALLEST_SHARE))
    return ThreadBudget(
        lane_threads=min(max(1, cores // 2) if emulator == "native" else cores, lanes),
        learn_threads=learners,
        torch_threads=max(1, cores // 2 // learners),
    )
