"""The shared model of the `parallel` runner: networks and optimiser in memory that all workers see.

A worker that has gradients takes the lock, loads what the model has become, takes the optimiser's step, and stores the
result. Stored is into the slot that is not in use, and one number then says which slot counts: so a worker that is
killed leaves the model as it was before, and its lock is released by the kernel.
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

from engine.agents import DoubleDQN
from engine.buffers.memory import SharedMemory, anonymous_arena
from engine.runtime.stopwatch import stages


class ProcessLock:
    """A lock between processes started with it, which a holder that dies releases (POSIX record locks)."""

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
    """Double DQN whose weights, target and optimiser are those of a shared model.

    Args:
        memory, lock: what all workers share.
        options: those of `DoubleDQN`.
    """

    def __init__(
        self, network: nn.Module, target: nn.Module, *, memory: SharedMemory, lock: ProcessLock, **options: Any
    ) -> None:
        super().__init__(network, target, **options)
        arrays = memory.arrays({
            "slots": ((2, sum(tensor.numel() for tensor in self.tensors())), np.float32),
            "updates": ((2,), np.int64),
            "stored": ((1,), np.int64),  # how often something was stored; its last bit is the slot that counts
        })  # fmt: skip
        self._slots = torch.from_numpy(arrays["slots"])
        self._slot_updates, self._stored = arrays["updates"], arrays["stored"]
        self._lock = lock
        self._held = 0  # what `_stored` was when this process held the same as the shared model

    def store_first(self) -> None:
        """Make this agent's state the shared model's, before any worker has started."""
        self._store()

    @stages("synchronise")
    def pull(self) -> None:
        """Take over what others have learned."""
        if int(self._stored[0]) != self._held:
            with self._lock():
                self._load()

    @stages("synchronise")
    def apply(self, gradients: list[Tensor]) -> None:
        """The shared model takes a step with gradients of this process's model, which may be some steps older."""
        with self._lock():
            self._load()
            super().apply(gradients)
            self._store()

    @torch.no_grad()
    def _load(self) -> None:
        stored = int(self._stored[0])
        if stored == self._held:
            return
        for tensor, part in self._parts(stored % 2):
            tensor.copy_(part)
        self.updates = int(self._slot_updates[stored % 2])
        self._held = stored

    @torch.no_grad()
    def _store(self) -> None:
        stored = int(self._stored[0]) + 1
        for tensor, part in self._parts(stored % 2):
            part.copy_(tensor)
        self._slot_updates[stored % 2] = self.updates
        self._stored[0] = stored  # from here on, what was stored counts
        self._held = stored

    def _parts(self, slot: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Each of this process's tensors, and its place in a slot of the shared model."""
        start = 0
        for tensor in self.tensors():
            yield tensor, self._slots[slot, start : start + tensor.numel()].view_as(tensor)
            start += tensor.numel()
