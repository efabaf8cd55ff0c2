"""A sum tree on a torch device: the same nodes as `SumTree`, computed level by level with operations of fixed shape.

So that the host never waits for the device, requests always have their maximum length. Invalid elements are written to
a spare node behind the last leaf, which belongs to no parent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.buffers.sum_tree import WIDTH, level_starts


class DeviceSumTree:
    """Non-negative float64 priorities of `size` leaves, initially zero. The device must support float64 (not MPS)."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._starts: list[int] = level_starts(size).tolist()
        self._nodes = torch.zeros(self._starts[-1] + 1, dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)  # leaves above zero

    @property
    def total(self) -> Tensor:
        """Sum of all priorities, float64 scalar."""
        return self._nodes[0]

    @property
    def leaves(self) -> Tensor:
        """Priorities float64 [size]; read-only."""
        return self._nodes[self._starts[-2] :][: self.size]

    def __getitem__(self, leaves: Tensor) -> Tensor:
        return self._nodes[self._starts[-2] + leaves]

    def set(self, leaves: Tensor, priorities: Tensor, valid: Tensor) -> None:
        """Set priorities [n] of leaves [n] where `valid` [n]; if a leaf occurs twice, the last valid value counts."""
        spare = self._starts[-1]
        places = torch.where(valid, self._starts[-2] + leaves, spare)
        places, order = places.sort(stable=True)  # makes equal places adjacent; the last one counts
        is_last = torch.ones_like(valid)
        is_last[:-1] = places[1:] != places[:-1]
        priorities = priorities[order]
        counts = is_last & (places != spare)
        self.count += (counts & (priorities > 0)).sum() - (counts & (self._nodes[places] > 0)).sum()
        self._nodes[torch.where(counts, places, spare)] = priorities
        # The spare place is given the parents of leaf 0: summing those again changes nothing.
        index = torch.where(counts, places - self._starts[-2], 0)
        children = torch.arange(WIDTH, device=index.device)
        for level in range(len(self._starts) - 3, -1, -1):
            index = index // WIDTH
            groups = self._nodes[self._starts[level + 1] + index[:, None] * WIDTH + children]
            self._nodes[self._starts[level] + index] = groups.sum(1)

    def find(self, prefixes: Tensor) -> Tensor:
        """For each of `prefixes` [n] in [0, total): the leaf at which the running sum of priorities exceeds it."""
        found = torch.zeros_like(prefixes, dtype=torch.int64)
        children = torch.arange(WIDTH, device=found.device)
        for start in self._starts[1:-1]:
            weights = self._nodes[start + found[:, None] * WIDTH + children]
            running = weights.cumsum(1)
            heavy = weights > 0  # never choose a zero, even if rounding puts the prefix past all others
            passed = heavy & (prefixes[:, None] < running)
            last = (heavy * (children + 1)).argmax(1)
            chosen = torch.where(passed.any(1), passed.byte().argmax(1), last)
            before = running.gather(1, (chosen - 1).clamp(min=0)[:, None]).squeeze(1) * (chosen > 0)
            prefixes = prefixes - before
            found = found * WIDTH + chosen
        return found
