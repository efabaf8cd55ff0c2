"""A sum tree over priorities: sets leaves and finds prefix sums in O(batch x log N).

Every node has 16 children, which fill two cache lines, so a tree over a million leaves has five levels instead of
twenty. Sums are float64: in float32, rounding lets a prefix search end at a leaf of priority zero. Parents are
recomputed from their children, because adding differences accumulates rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import helper, kernel, prefetch

WIDTH = 16
"""Children of a node."""
_CACHE_LINES = WIDTH * 8  # bytes


def level_starts(size: int) -> NDArray[np.int64]:
    """Offsets of a tree's levels in its array of nodes, root first, and the array's length; for `size` leaves."""
    counts = [max(1, -(-size // WIDTH)) * WIDTH]
    while counts[0] > 1:
        groups = counts[0] // WIDTH
        counts.insert(0, groups if groups == 1 else -(-groups // WIDTH) * WIDTH)
    return np.concatenate(
        ([0], WIDTH - 1 + np.cumsum(counts))
    )  # the root takes the space of a group, so that groups are aligned


class SumTree:
    """Non-negative float64 priorities of `size` leaves, initially zero."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.starts = level_starts(size)
        memory = np.zeros(self.starts[-1] + WIDTH, np.float64)
        skip = -memory.ctypes.data % _CACHE_LINES // memory.itemsize  # align groups with cache lines
        self.nodes = memory[skip : skip + self.starts[-1]]
        self.leaves = self.nodes[self.starts[-2] : self.starts[-2] + size]
        """Priorities [size]; read-only."""

    @property
    def total(self) -> float:
        return float(self.nodes[0])

    def __getitem__(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.leaves[leaves]
        return values

    def set(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> int:
        """Set priorities of leaves [n]; if a leaf occurs twice, the last value counts.

        Returns the change in the number of leaves above zero.
        """
        values = np.broadcast_to(priorities, leaves.shape).astype(np.float64, order="C")  # broadcast ones have gaps
        return set_leaves(self.nodes, self.starts, leaves.astype(np.int64, order="C"), values)

    def find(self, prefixes: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each of `prefixes` [n] in [0, total): the leaf at which the running sum of priorities exceeds it.

        Fastest for ascending prefixes, such as those of stratified draws.
        """
        found = np.empty(prefixes.size, np.int64)
        find_leaves(self.nodes, self.starts, prefixes.copy(), found)
        return found


@kernel("float64[1], int64[1], int64[1], float64[1]")
def set_leaves(nodes: Any, starts: Any, leaves: Any, priorities: Any) -> Any:
    """`SumTree.set` on a tree's arrays; overwrites `leaves` [n]."""
    last = starts.size - 2
    more = 0
    for i in range(leaves.size):
        place = starts[last] + leaves[i]
        more += (priorities[i] > 0) - (nodes[place] > 0)
        nodes[place] = priorities[i]
    for level in range(last - 1, -1, -1):
        previous = -1
        for i in range(leaves.size):
            leaves[i] //= WIDTH  # the node of this level above the leaf
            if leaves[i] == previous:
                continue
            previous = leaves[i]
            group = starts[level + 1] + WIDTH * leaves[i]
            nodes[starts[level] + leaves[i]] = (_sum4(nodes, group) + _sum4(nodes, group + 4)) + (
                _sum4(nodes, group + 8) + _sum4(nodes, group + 12)
            )
    return more


@kernel("float64[1], int64[1], float64[1], int64[1]")
def find_leaves(nodes: Any, starts: Any, prefixes: Any, found: Any) -> None:
    """`SumTree.find` on a tree's arrays. Writes leaves to `found` [n]; overwrites `prefixes` [n]."""
    walked = 0  # last level with fewer nodes than prefixes, but few enough that a prefix out of order stays cheap
    while walked + 3 < starts.size and starts[walked + 2] - starts[walked + 1] <= min(prefixes.size, WIDTH * WIDTH):
        walked += 1
    _scan_level(nodes, starts[walked], starts[walked + 1], prefixes, found)
    for level in range(walked + 1, starts.size - 1):
        for i in range(found.size):
            group, prefix = starts[level] + WIDTH * found[i], prefixes[i]
            # First the quarter of the group, then the child in it, without unpredictable branches.
            first = _sum4(nodes, group)
            second = first + _sum4(nodes, group + 4)
            third = second + _sum4(nodes, group + 8)
            child = 4 * ((prefix >= first) + (prefix >= second) + (prefix >= third))
            before = first if prefix >= first else 0.0
            before = second if prefix >= second else before
            before = third if prefix >= third else before
            running = before
            quarter = group + child
            for k in range(quarter, quarter + 3):
                running += nodes[k]
                child += prefix >= running
                before = running if prefix >= running else before
            if not nodes[group + child] > 0:  # rounding put the prefix past all others
                child, before = _find_child_exactly(nodes, group, prefix)
            prefixes[i] -= before
            found[i] = found[i] * WIDTH + child
            if level < starts.size - 2:
                _prefetch_group(nodes, starts[level + 1] + found[i] * WIDTH)


@helper
def _scan_level(nodes: Any, begin: Any, end: Any, prefixes: Any, found: Any) -> None:
    """Find nodes of the level in [begin, end) by a linear scan; prefixes become the remainders within those nodes."""
    last = end - 1
    while last > begin and not nodes[last] > 0:  # a trailing zero, where rounding must not put a prefix
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
    """Load a group into the cache that will be searched soon."""
    prefetch(nodes, first)
    prefetch(nodes, first + WIDTH // 2)  # it is two cache lines


@helper
def _sum4(nodes: Any, first: Any) -> Any:
    return (nodes[first] + nodes[first + 1]) + (nodes[first + 2] + nodes[first + 3])


@helper
def _find_child_exactly(nodes: Any, group: Any, prefix: Any) -> Any:
    """The child above zero that contains the prefix, or else the last one above zero; and the sum before it."""
    chosen, before, running = 0, 0.0, 0.0
    for child in range(WIDTH):
        if nodes[group + child] > 0:
            chosen, before = child, running
            running += nodes[group + child]
            if prefix < running:
                break
    return chosen, before
