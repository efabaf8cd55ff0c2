"""A sum tree over priorities: set leaves and find prefix sums in O(batch x log N).

Every node has 16 children, which lie in two cache lines: a tree over a million leaves is five levels deep instead of
twenty. float64 on purpose: in float32, rounding lets a prefix search end on a leaf of priority zero. Parents are
recomputed from their children, because adding differences drifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.runtime.jit import helper, kernel, prefetch

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
        self.leaves = self.nodes[self.starts[-2] : self.starts[-2] + size]
        """Priorities [size], to be looked at."""

    @property
    def total(self) -> float:
        return float(self.nodes[0])

    def __getitem__(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.leaves[leaves]
        return values

    def set(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> int:
        """Set priorities of leaves [n]; where a leaf occurs twice, the last one counts.

        Returns how many leaves above zero there are now more than before.
        """
        return int(set_leaves(self.nodes, self.starts, leaves, np.broadcast_to(np.float64(priorities), leaves.shape)))

    def find(self, prefixes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Leaves [n] at which the running sum of priorities passes each of `prefixes` [n] in [0, total).

        Quickest where prefixes ascend, as those of stratified draws do.
        """
        found = np.empty(prefixes.size, np.int64)
        find_leaves(self.nodes, self.starts, prefixes.copy(), found)
        return found


@kernel
def set_leaves(nodes: Any, starts: Any, leaves: Any, priorities: Any) -> Any:
    """`SumTree.set` on a tree's arrays."""
    groups = nodes.reshape(-1, WIDTH)
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
            group = starts[level + 1] // WIDTH + index[i]
            nodes[starts[level] + index[i]] = (_sum4(groups, group, 0) + _sum4(groups, group, 4)) + (
                _sum4(groups, group, 8) + _sum4(groups, group, 12)
            )
    return more


@kernel
def find_leaves(nodes: Any, starts: Any, prefixes: Any, found: Any) -> None:
    """`SumTree.find` on a tree's arrays, into `found`; `prefixes` are used up."""
    groups = nodes.reshape(-1, WIDTH)
    walked = 0  # the last level with fewer nodes than prefixes, but not so many that one out of order is expensive
    while walked + 3 < starts.size and starts[walked + 2] - starts[walked + 1] <= min(prefixes.size, WIDTH**2):
        walked += 1
    _walk(nodes, starts[walked], starts[walked + 1], prefixes, found)
    for level in range(walked + 1, starts.size - 1):
        for i in range(found.size):
            group, prefix = starts[level] // WIDTH + found[i], prefixes[i]
            # Which quarter of the group, then which child of it; counted without branches that nobody could predict.
            first = _sum4(groups, group, 0)
            second = first + _sum4(groups, group, 4)
            third = second + _sum4(groups, group, 8)
            child = 4 * ((prefix >= first) + (prefix >= second) + (prefix >= third))
            before = first if prefix >= first else 0.0
            before = second if prefix >= second else before
            before = third if prefix >= third else before
            running = before
            for k in range(child, child + 3):
                running += groups[group, k]
                child += prefix >= running
                before = running if prefix >= running else before
            if not groups[group, child] > 0:  # rounding put the prefix past all others
                child, before = _careful(groups, group, prefix)
            prefixes[i] -= before
            found[i] = found[i] * WIDTH + child
            if level < starts.size - 2:
                _prefetch_group(nodes, starts[level + 1] + found[i] * WIDTH)


@helper
def _walk(nodes: Any, begin: Any, end: Any, prefixes: Any, found: Any) -> None:
    """Find nodes of the level between two places one after the other; prefixes become what is left of them there."""
    last = end - 1
    while last > begin and not nodes[last] > 0:  # rounding must not put a prefix there
        last -= 1
    place, before = begin, 0.0
    for i in range(found.size):
        if prefixes[i] < before:
            place, before = begin, 0.0
        while place < last and prefixes[i] >= before + nodes[place]:
            before += nodes[place]
            place += 1
        prefixes[i] -= before
        found[i] = place - begin
        _prefetch_group(nodes, end + found[i] * WIDTH)


@helper
def _prefetch_group(nodes: Any, first: Any) -> None:
    """Have a group that is searched soon in the cache by then."""
    prefetch(nodes, first)
    prefetch(nodes, first + WIDTH // 2)  # it is two cache lines


@helper
def _sum4(groups: Any, group: Any, first: Any) -> Any:
    return (groups[group, first] + groups[group, first + 1]) + (groups[group, first + 2] + groups[group, first + 3])


@helper
def _careful(groups: Any, group: Any, prefix: Any) -> Any:
    """A group's child that is above zero and that a prefix falls into, else the last above zero; the sum before it."""
    chosen, before, running = 0, 0.0, 0.0
    for child in range(WIDTH):
        if groups[group, child] > 0:
            chosen, before = child, running
            running += groups[group, child]
            if prefix < running:
                break
    return chosen, before
