"""The learner's weights for its actors: one writer, many readers, no lock.

Two slots, written in turns. A reader copies the newest and looks afterwards whether its slot was taken up again
meanwhile; a writer that dies in the middle leaves the newest untouched.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from engine.buffers.memory import Memory
from engine.runtime.stopwatch import stages


class SharedWeights:
    """Parameters of a network of `size` numbers, and the count of updates behind them."""

    def __init__(self, size: int, memory: Memory) -> None:
        arrays = memory.arrays(
            {"slots": ((2, size), np.float32), "updates": ((2,), np.int64), "versions": ((2,), np.int64)}
        )
        self._slots, self._updates = arrays["slots"], arrays["updates"]
        self._versions = arrays["versions"]  # begun to be written, written
        self._held = 0

    @stages("synchronise")
    @torch.no_grad()
    def publish(self, network: nn.Module, updates: int) -> None:
        """Offer a network's parameters."""
        version = int(self._versions[1]) + 1
        self._versions[0] = version
        self._slots[version % 2] = parameters_to_vector(network.parameters()).cpu().numpy()
        self._updates[version % 2] = updates
        self._versions[1] = version

    @stages("synchronise")
    @torch.no_grad()
    def pull(self, network: nn.Module) -> int | None:
        """Load the newest parameters; how many updates are behind them, or None if there are none newer."""
        while (version := int(self._versions[1])) != self._held:
            vector, updates = self._slots[version % 2].copy(), int(self._updates[version % 2])
            if int(self._versions[0]) <= version + 1:
                vector_to_parameters(torch.from_numpy(vector), network.parameters())
                self._held = version
                return updates
        return None


def count(network: nn.Module) -> int:
    """Numbers in a network's parameters."""
    return sum(parameter.numel() for parameter in network.parameters())
