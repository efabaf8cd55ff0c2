"""What the head of a Ray cluster knows, and whether it still answers. Ray itself is not imported here (see
`engine.extras.ray.cluster`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from engine.extras.ray.named_cluster import reach
from engine.runtime.threads import GraceTime

_EVERY_S, _TIMEOUT_S, _TRIES = 1.0, 2.0, 5
_LIMIT_S = 30.0
"""Seconds of silence after which the head counts as hung."""


@dataclass(frozen=True)
class Nodes:
    """The nodes that the head knew at one time."""

    at: float  # CLOCK_MONOTONIC
    free_cores: float
    cores_of: dict[str, float]  # each node that is alive

    @property
    def cores(self) -> float:
        return sum(self.cores_of.values())

    def node_with_room(self, used: Sequence[str], avoided: Collection[str]) -> str:
        """The node with the most cores that are not `used` (a node for each), without those to avoid; empty if there is
        none."""
        free = {node: cores - used.count(node) for node, cores in self.cores_of.items() if node not in avoided}
        best = max(free, key=lambda node: free[node], default="")
        return best if best and free[best] >= 1 else ""


class HeadWatch:
    """Looks at the cluster once a second, in a thread, because the head may not answer.

    `address`: of the head; `look`: asks it; `gone`: called in the thread when it can't be reached any more, once for
    every further try.
    """

    def __init__(self, address: str, look: Callable[[], Nodes], gone: Callable[[], None]) -> None:
        self.address, self._look, self._gone = address, look, gone
        self._grace = GraceTime(_LIMIT_S)
        self._closing = threading.Event()
        self.seen = look()
        """The newest that is known."""

    def start(self) -> None:
        threading.Thread(target=self._watch, name="ray head", daemon=True).start()

    def is_silent(self, now: float, stall_s: float) -> bool:
        """Return whether the head counts as hung. `stall_s`: what the caller itself has just stood still, which may
        have held up this thread as well."""
        return now - self.seen.at > _LIMIT_S and not self._grace.granted(stall_s)

    def close(self) -> bool:
        """Stop looking; False if that was requested before."""
        was_open = not self._closing.is_set()
        self._closing.set()
        return was_open

    def _watch(self) -> None:
        failures = 0
        while not self._closing.wait(_EVERY_S):
            try:
                reach(self.address, _TIMEOUT_S)
            except OSError:
                failures += 1
            else:
                failures = 0
            if failures >= _TRIES and not self._closing.is_set():
                self._gone()
            if not failures:
                with contextlib.suppress(Exception):  # at the end, Ray disconnects meanwhile
                    self.seen = self._look()
