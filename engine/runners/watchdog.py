"""When a silent process counts as hung: limits, and grace time after the watcher itself was stalled."""

from __future__ import annotations

import math
import time

SILENCE_LIMIT_S = 20.0
"""Seconds of silence after which a coordinator counts as hung, unless it announced a longer silence."""
START_LIMIT_S = 600.0
"""Seconds of silence after which a starting process counts as hung. It may compile, and on nes-py each lane replays the
inputs of its start."""


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
