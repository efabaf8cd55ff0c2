"""When a silent process counts as hung: limits, time that it waited for a free core, and grace time after the watcher
itself was stalled."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

SILENCE_LIMIT_S = 20.0
"""Seconds of silence after which a coordinator counts as hung, unless it announced a longer silence."""
START_LIMIT_S = 600.0
"""Seconds of silence after which a starting process counts as hung. It may compile, and on nes-py each lane replays the
inputs of its start."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class GraceTime:
    """Grace time for watched processes: whatever stalled the watcher (a suspended machine, say) stalled them, too.

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
        """Whether the watched still have time, given that the watcher was stalled for `stalled_s` seconds."""
        now = time.monotonic()
        if stalled_s > self._limit_s / 4:
            self._until = now + self._limit_s
        return now <= self._until


class Silence:
    """How long a process of this machine has been silent. When it has been so for half of `limit_s` seconds, it is
    spared the time that its threads wait for a free core: beside other programs, a run of low priority hardly gets one.
    """

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid, self._limit_s = pid, limit_s
        self._due, self._spared_s = math.inf, 0.0
        self._looked_at, self._used_s = 0.0, dict[str, float]()

    def is_too_long(self, due: float, now: float) -> bool:
        """Whether the process is overdue at `now`; it was to give a sign of life by `due` (both CLOCK_MONOTONIC)."""
        if due != self._due:
            self._due, self._spared_s, self._used_s = due, 0.0, {}
        if now < due - self._limit_s / 2:
            return False
        before, self._used_s = self._used_s, _used_s(self._pid)
        least = min((used - before[thread] for thread, used in self._used_s.items() if thread in before), default=None)
        if least is not None:
            self._spared_s += max(0.0, now - self._looked_at - least)
        self._looked_at = now
        return now > due + self._spared_s


def _used_s(pid: int) -> dict[str, float]:
    """Seconds of a core that each thread of a process has used which computes or waits for a core, and does not wait
    for anything else. Empty where there is no /proc."""
    used = dict[str, float]()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state, *numbers = thread.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):  # it has ended
            continue
        if state == "R":
            used[thread.parent.name] = sum(map(int, numbers[10:12])) / _TICKS_PER_S
    return used
