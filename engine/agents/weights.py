"""Shared weights from the learner to its actors: one writer, many readers, no lock.

There are two slots, written in turns. A reader copies the newest slot and then checks that the writer has not begun to
overwrite it. A writer that dies while writing leaves the newest slot intact.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import vector_to_parameters

from engine.buffers.memory import Memory
from engine.runtime.fence import fence
from engine.runtime.stopwatch import stopwatch


class SharedWeights:
    """Parameters of a network (`size` float32 numbers), with the number of updates that led to them."""

    def __init__(self, size: int, memory: Memory) -> None:
        arrays = memory.arrays(
            {"slots": ((2, size), np.float32), "updates": ((2,), np.int64), "versions": ((2,), np.int64)}
        )
        self._slots, self._updates = arrays["slots"], arrays["updates"]
        self._versions = arrays["versions"]  # last version begun, last version complete
        self._loaded = 0

    @stopwatch("synchronise")
    @torch.no_grad()
    def publish(self, network: nn.Module, updates: int) -> None:
        """Publish a network's parameters."""
        version = int(self._versions[1]) + 1
        self._versions[0] = version
        fence()
        self._slots[version % 2] = vector_of(network)
        self._updates[version % 2] = updates
        fence()
        self._versions[1] = version

    @stopwatch("synchronise")
    @torch.no_grad()
    def pull(self, network: nn.Module) -> int | None:
        """Load the newest parameters and return their number of updates; None if there are no newer ones."""
        while (version := int(self._versions[1])) != self._loaded:
            fence()
            vector, updates = self._slots[version % 2].copy(), int(self._updates[version % 2])
            fence()
            if int(self._versions[0]) <= version + 1:
                vector_to_parameters(torch.from_numpy(vector), network.parameters())
                self._loaded = version
                return updates
        return None


def vector_of(network: nn.Module) -> NDArray[np.float32]:
    """All parameters of a network in one array, each in row-major order, however it lies in memory."""
    array: NDArray[np.float32] = torch.cat([each.detach().flatten() for each in network.parameters()]).cpu().numpy()
    return array


def parameter_count(network: nn.Module) -> int:
    """Number of scalar parameters of a network."""
    return sum(parameter.numel() for parameter in network.parameters())
