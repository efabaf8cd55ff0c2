"""When a silent process counts as hung."""

from __future__ import annotations

import math
import time

BEAT_S = 20.0
"""Seconds of silence after which a leading process is taken to hang, unless it said otherwise."""
START_S = 600.0
"""Seconds of silence after which a process that starts is taken to hang: it may compile, and on nes-py each lane
replays the log of its start."""


class Patience:
    """Of who watches others with others: what held up the watcher, a machine that stood still say, held them up, too.

    Args:
        beat_s: the time within which they are heard of.
    """

    def __init__(self, beat_s: float) -> None:
        self._beat_s, self._until = beat_s, -math.inf

    def spares(self, held_up_s: float) -> bool:
        """Whether they still have time, now that the watcher comes so late."""
        now = time.monotonic()
        if held_up_s > self._beat_s / 4:
            self._until = now + self._beat_s
        return now <= self._until
