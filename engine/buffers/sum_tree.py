"""A sum tree over priorities: set leaves and find prefix sums in O(batch x log N).

Every node has 16 children, which lie in two cache lines: a tree over a million leaves is five levels deep instead of
twenty. float64 on purpose: in float32, rounding lets a prefix search end on a leaf of priority zero. Parents are
recomputed from their children, because adding differences drifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.jit import kernel

WIDTH = 16
"""Children of a node."""


def level_starts(size: int) -> NDArray[np.int64]:
    """Where the levels of a tree over `size` leaves begin in its array of nodes, the root's first; then its length."""
    counts = [max(1, -(-size // WIDTH)) * WIDTH]
    while counts[0] > 1:
        groups = counts[0] // WIDTH
        counts.insert(0, groups if groups == 1 else -(-groups // WIDTH) * WIDTH)
    return np.concatenate(([0], np.cumsum(counts)))


class SumTree:
    """Non-negative priorities of `size` leaves, all zero at first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._starts = level_starts(size)
        self._nodes = np.zeros(self._starts[-1], np.float64)
        self._leaves = self._nodes[self._starts[-2] :]

    @property
    def total(self) -> float:
        return float(self._nodes[0])

    def __getitem__(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._leaves[leaves]
        return values

    def set(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> int:
        """Set priorities of leaves [n]; where a leaf occurs twice, the last one counts.

        Returns how many leaves above zero there are now more than before.
        """
        return int(_set(self._nodes, self._starts, leaves, np.broadcast_to(np.float64(priorities), leaves.shape)))

    def find(self, prefixes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Leaves [n] at which the running sum of priorities passes each of `prefixes` [n] in [0, total)."""
        found = np.empty(prefixes.size, np.int64)
        _find(self._nodes, self._starts, prefixes, found)
        return found


@kernel
def _set(nodes: Any, starts: Any, leaves: Any, priorities: Any) -> Any:
    last = starts.size - 2
    more = 0
    for i in range(leaves.size):
        place = starts[last] + leaves[i]
        more += (priorities[i] > 0) - (nodes[place] > 0)
        nodes[place] = priorities[i]
    index = leaves.copy()
    for level in range(last - 1, -1, -1):
        previous = -1
        for i in range(index.size):
            index[i] //= WIDTH
            if index[i] == previous:
                continue
            previous = index[i]
            first = starts[level + 1] + index[i] * WIDTH
            total = 0.0
            for child in range(first, first + WIDTH):
                total += nodes[child]
            nodes[starts[level] + index[i]] = total
    return more


@kernel
def _find(nodes: Any, starts: Any, prefixes: Any, found: Any) -> None:
    rest = prefixes.copy()
    found[:] = 0
    for level in range(1, starts.size - 1):  # level by level, so that the cache misses of a level overlap
        for i in range(found.size):
            first = starts[level] + found[i] * WIDTH
            chosen, before, running = 0, 0.0, 0.0
            for child in range(WIDTH):
                weight = nodes[first + child]
                if weight > 0:  # else it is never entered, even if rounding puts the prefix past all others
                    chosen, before = child, running
                    running += weight
                    if rest[i] < running:
                        break
            rest[i] -= before
            found[i] = found[i] * WIDTH + chosen
