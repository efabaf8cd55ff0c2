"""A sum tree over priorities: set leaves and find a prefix sum in O(batch x log N), vectorised level by level.

float64 on purpose: in float32, rounding lets a prefix search end on a leaf of priority zero. Parents are recomputed
from their children, because adding differences drifts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """Non-negative priorities of `size` leaves, all zero at first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._first_leaf = 1 << max(size - 1, 1).bit_length()
        self._nodes = np.zeros(2 * self._first_leaf, np.float64)  # node k has the children 2k and 2k + 1; root is 1

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def __getitem__(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._nodes[self._first_leaf + leaves]
        return values

    def set(self, leaves: NDArray[np.int64], priorities: NDArray[np.float64] | float) -> None:
        """Set priorities of leaves [n]; where a leaf occurs twice, the last one counts."""
        if leaves.size == 0:
            return
        nodes = self._first_leaf + leaves
        self._nodes[nodes] = priorities
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, prefixes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Leaves [n] at which the running sum of priorities passes each of `prefixes` [n] in [0, total)."""
        rest = prefixes.copy()
        nodes = np.ones(prefixes.size, np.int64)
        while nodes[0] < self._first_leaf:
            left = self._nodes[2 * nodes]
            # A right child without weight is never entered, even if rounding puts the prefix past the left one.
            goes_right = (rest >= left) & (self._nodes[2 * nodes + 1] > 0)
            rest -= np.where(goes_right, left, 0)
            nodes = 2 * nodes + goes_right
        return nodes - self._first_leaf
