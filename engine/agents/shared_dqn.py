"""The shared model of the `parallel` runner: networks and optimiser in shared memory.

A worker with gradients acquires the lock, loads the current model, takes an optimiser step and stores the result. It
writes to the slot that is not in use, and then a single number switches slots. So a killed worker leaves the model
unchanged, and the kernel releases its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from multiprocessing.heap import Arena
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.agents.double_dqn import DoubleDQN
from engine.buffers.memory import SharedMemory, anonymous_arena
from engine.runtime.stopwatch import stopwatch


class ProcessLock:
    """A lock shared with processes that are started with it. It is released if its holder dies (POSIX record locks)."""

    def __init__(self) -> None:
        self._arena: Arena = anonymous_arena(1)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        fcntl.lockf(self._arena.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._arena.fd, fcntl.LOCK_UN)


class SharedDQN(DoubleDQN):
    """Double DQN whose weights, target and optimiser are a shared model.

    Args:
        memory, lock: shared by all workers.
        options: keyword arguments of `DoubleDQN`.
    """

    def __init__(
        self, network: nn.Module, target: nn.Module, *, memory: SharedMemory, lock: ProcessLock, **options: Any
    ) -> None:
        super().__init__(network, target, **options)
        arrays = memory.arrays({
            "slots": ((2, sum(tensor.numel() for tensor in self.tensors())), np.float32),
            "updates": ((2,), np.int64),
            "stored": ((1,), np.int64),  # number of stores so far; the last bit is the current slot
        })  # fmt: skip
        self._slots = torch.from_numpy(arrays["slots"])
        self._slot_updates, self._stored = arrays["updates"], arrays["stored"]
        self._lock = lock
        self._loaded = 0  # value of `_stored` when this process was last equal to the shared model

    @stopwatch("synchronise")
    def pull(self) -> None:
        """Load the shared model if other workers have updated it."""
        if int(self._stored[0]) != self._loaded:
            with self._lock():
                self._load()

    @stopwatch("synchronise")
    def apply(self, gradients: list[Tensor]) -> None:
        """Update the shared model with this process's gradients, which may stem from a model some steps older."""
        with self._lock():
            self._load()
            super().apply(gradients)
            self.store()

    @torch.no_grad()
    def _load(self) -> None:
        stored = int(self._stored[0])
        if stored == self._loaded:
            return
        tensors = self.tensors()
        slot = self._slots[stored % 2].to(self.device)
        parts = torch.split(slot, [tensor.numel() for tensor in tensors])
        if self._owner and self._buffers[0]:
            tensors = tensors[: -len(self._buffers[0])]
        torch._foreach_copy_(tensors, [part.view_as(tensor) for tensor, part in zip(tensors, parts, strict=False)])
        self.updates = int(self._slot_updates[stored % 2])
        self._loaded = stored

    @torch.no_grad()
    def store(self) -> None:
        """Store this agent's state as the shared model: first before any worker starts, then with the lock."""
        stored = int(self._stored[0]) + 1
        self._write(self._slots[stored % 2], [tensor.flatten() for tensor in self.tensors()])
        self._slot_updates[stored % 2] = self.updates
        self._stored[0] = stored  # switches slots
        self._loaded = stored

    def _write(self, slot: Tensor, parts: list[Tensor]) -> None:
        if self.device.type == "cpu":
            torch.cat(parts, out=slot)
        else:  # one copy between the devices, not one for each tensor
            slot.copy_(torch.cat(parts))
