"""A sum tree over priorities: set leaves and find prefix sums in O(batch x log N).

Every node has 16 children, which lie in two cache lines: a tree over a million leaves is five levels deep instead of
twenty. float64 on purpose: in float32, rounding lets a prefix search end on a leaf of priority zero. Parents are
recomputed from their children, because adding differences drifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.jit import helper, kernel

WIDTH = 16
"""Children of a node."""
_CACHE_LINES = WIDTH * 8  # bytes


def level_starts(size: int) -> NDArray[np.int64]:
    """Where the levels of a tree over `size` leaves begin in its array of nodes, the root's first; then its length."""
    counts = [max(1, -(-size // WIDTH)) * WIDTH]
    while counts[0] > 1:
        groups = counts[0] // WIDTH
        counts.insert(0, groups if groups == 1 else -(-groups // WIDTH) * WIDTH)
    return np.concatenate(([0], WIDTH - 1 + np.cumsum(counts)))  # the root has a group's room: then groups are aligned


class SumTree:
    """Non-negative priorities of `size` leaves, all zero at first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.starts = level_starts(size)
        room = np.zeros(self.starts[-1] + WIDTH, np.float64)
        skip = -room.ctypes.data % _CACHE_LINES // room.itemsize
        self.nodes = room[skip : skip + self.starts[-1]]
        self._leaves = self.nodes[self.starts[-2] :]

    @property
    def total(self) -> float:
        return float(self.nodes[0])

    def __getitem__(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._leaves[leaves]
        return values

    def set(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> int:
        """Set priorities of leaves [n]; where a leaf occurs twice, the last one counts.

        Returns how many leaves above zero there are now more than before.
        """
        return int(set_leaves(self.nodes, self.starts, leaves, np.broadcast_to(np.float64(priorities), leaves.shape)))

    def find(self, prefixes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Leaves [n] at which the running sum of priorities passes each of `prefixes` [n] in [0, total)."""
        found = np.empty(prefixes.size, np.int64)
        find_leaves(self.nodes, self.starts, prefixes.copy(), found)
        return found


@kernel
def set_leaves(nodes: Any, starts: Any, leaves: Any, priorities: Any) -> Any:
    """`SumTree.set` on a tree's arrays."""
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
            nodes[starts[level] + index[i]] = (_sum4(nodes, first) + _sum4(nodes, first + 4)) + (
                _sum4(nodes, first + 8) + _sum4(nodes, first + 12)
            )
    return more


@kernel
def find_leaves(nodes: Any, starts: Any, prefixes: Any, found: Any) -> Any:
    """`SumTree.find` on a tree's arrays, into `found`; `prefixes` are used up. What it returns means nothing."""
    found[:], touched = 0, 0.0
    for level in range(1, starts.size - 1):
        for i in range(found.size):  # both cache lines of every group: nothing waits here, so that the misses overlap
            touched += nodes[starts[level] + found[i] * WIDTH] + nodes[starts[level] + found[i] * WIDTH + WIDTH // 2]
        for i in range(found.size):
            first = starts[level] + found[i] * WIDTH
            # Which quarter of the group, then which child of it; selected without branches that nobody could predict.
            quarter, before = _pick(prefixes[i], _sum4(nodes, first), _sum4(nodes, first + 4), _sum4(nodes, first + 8))
            place = first + 4 * quarter
            child, within = _pick(prefixes[i] - before, nodes[place], nodes[place + 1], nodes[place + 2])
            child, before = 4 * quarter + child, before + within
            if not nodes[first + child] > 0:  # rounding put the prefix past all others
                child, before = _careful(nodes, first, prefixes[i])
            prefixes[i] -= before
            found[i] = found[i] * WIDTH + child
    return touched  # else the compiler would leave the touching out


@helper
def _sum4(nodes: Any, first: Any) -> Any:
    return (nodes[first] + nodes[first + 1]) + (nodes[first + 2] + nodes[first + 3])


@helper
def _pick(prefix: Any, first: Any, second: Any, third: Any) -> Any:
    """Which of four weights a prefix falls into, and the sum before that one. What is past three is the fourth's."""
    two = first + second
    three = two + third
    chosen, before = 0, 0.0
    chosen, before = (1, first) if prefix >= first else (chosen, before)
    chosen, before = (2, two) if prefix >= two else (chosen, before)
    chosen, before = (3, three) if prefix >= three else (chosen, before)
    return chosen, before


@helper
def _careful(nodes: Any, first: Any, prefix: Any) -> Any:
    """A group's child that is above zero and that a prefix falls into, else the last above zero; the sum before it."""
    chosen, before, running = 0, 0.0, 0.0
    for child in range(WIDTH):
        if nodes[first + child] > 0:
            chosen, before = child, running
            running += nodes[first + child]
            if prefix < running:
                break
    return chosen, before
