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
from engine.buffers.memory import SharedMemory, nameless
from engine.runners.weights import count


class ProcessLock:
    """A lock between processes started with it, which a holder that dies releases (POSIX record locks)."""

    def __init__(self) -> None:
        self._arena: Arena = nameless(1)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        fcntl.lockf(self._arena.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._arena.fd, fcntl.LOCK_UN)


class CentralDQN(DoubleDQN):
    """Double DQN whose weights, target and optimiser are those of a shared model.

    Args:
        memory, lock: what all workers share.
        options: those of `DoubleDQN`.
    """

    def __init__(
        self, network: nn.Module, target: nn.Module, *, memory: SharedMemory, lock: ProcessLock, **options: Any
    ) -> None:
        super().__init__(network, target, **options)
        size = count(network)
        arrays = memory.arrays({
            "slots": ((2, 4, size), np.float32),  # online, target, and the two moments of the gradients
            "counts": ((2, 2), np.int64),  # updates, and steps of the optimiser
            "stored": ((1,), np.int64),  # how often something was stored; its last bit is the slot that counts
        })  # fmt: skip
        self._slots, self._counts = torch.from_numpy(arrays["slots"]), arrays["counts"]
        self._stored = arrays["stored"]
        self._lock = lock
        self._held = 0  # what `_stored` was when this process held the same as the shared model
        self._targets: list[Tensor] = list(self.target.parameters())

    def store_first(self) -> None:
        """Make this agent's state the shared model's, before any worker has started."""
        self._store()

    def pull(self) -> None:
        """Take over what others have learned."""
        if int(self._stored[0]) != self._held:
            with self._lock():
                self._load()

    def apply(self, gradients: list[Tensor]) -> None:
        """The shared model takes a step with gradients of this process's model, which may be some steps older."""
        with self._lock():
            self._load()
            super().apply(gradients)
            self._store()

    def sync_target(self, tau: float = 1.0) -> None:
        with self._lock():
            self._load()
            super().sync_target(tau)
            self._store()

    @torch.no_grad()
    def _load(self) -> None:
        stored = int(self._stored[0])
        if stored == self._held:
            return
        slot = stored % 2
        self.updates, steps = self._counts[slot].tolist()
        for place, tensors in enumerate(self._state(steps)):
            start = 0
            for tensor in tensors:
                tensor.copy_(self._slots[slot, place, start : start + tensor.numel()].view_as(tensor))
                start += tensor.numel()
        self._held = stored

    @torch.no_grad()
    def _store(self) -> None:
        slot = (int(self._stored[0]) + 1) % 2
        steps = 0
        for place, tensors in enumerate(self._state(None)):
            start = 0
            for tensor in tensors:
                self._slots[slot, place, start : start + tensor.numel()].copy_(tensor.flatten())
                start += tensor.numel()
        first = self.optimizer.state.get(self._parameters[0])
        steps = int(first["step"]) if first else 0
        self._counts[slot] = self.updates, steps
        self._stored[0] += 1  # from here on, what was stored counts
        self._held = int(self._stored[0])

    def _state(self, steps: int | None) -> tuple[list[Tensor], ...]:
        """Weights, target, moments. An optimiser that has not stepped yet gets moments if `steps` is given."""
        moments: tuple[list[Tensor], list[Tensor]] = ([], [])
        for parameter in self._parameters:
            held = self.optimizer.state[parameter]
            if not held:
                held |= {
                    "step": torch.tensor(0.0, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
            if steps is not None:
                held["step"].fill_(steps)
            moments[0].append(held["exp_avg"])
            moments[1].append(held["exp_avg_sq"])
        return self._parameters, self._targets, *moments
