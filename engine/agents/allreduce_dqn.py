"""Double DQN on several ranks: each learns from a batch of its own, and all take the same step with the mean gradient.

Gradients are added up over the ranks one parameter at a time, while the backward pass still computes the others. Every
rank starts the same additions in the same order, also one that ran out of memory: it adds zeros and says so, and then
all repeat the update in smaller parts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.agents.double_dqn import DoubleDQN, Losses, is_shortage, release_memory
from engine.buffers import Batch
from engine.buffers.device.storage import Array, TensorBatch
from engine.runtime.stopwatch import stages


class AllreduceDQN(DoubleDQN):
    """`DoubleDQN` whose updates are collective, on torch.distributed's default group.

    A loss is the mean over the rank's batch, so the gradient is that of one batch of all ranks' samples together. Its
    norm is clipped after averaging.
    """

    def __init__(self, network: nn.Module, target: nn.Module, **options: Any) -> None:
        super().__init__(network, target, **{**options, "threads": 1})
        self._order = list(reversed(self._parameters))  # about the order in which a backward pass finds gradients
        self._found_of = {id(parameter): place for place, parameter in enumerate(self._order)}
        self._ready = [False] * len(self._order)
        self._additions: list[dist.Work] = []
        self._adding = False
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._found_gradient)  # type: ignore[no-untyped-call]

    def broadcast(self) -> None:
        """Let every rank have what rank 0 has learned."""
        updates = torch.tensor([self.updates], device=self.device)
        for tensor in (*self.tensors(), updates):
            place = tensor.detach().to(self.device)
            dist.broadcast(place, 0)
            with torch.no_grad():
                tensor.copy_(place)
        self.updates = int(updates.item())

    def update(self, batch: Batch | TensorBatch, weights: Array) -> Losses:
        """One optimiser step of all ranks on the mean of their gradients."""
        while True:
            parts: list[Tensor] = []
            short = False
            try:
                self._backward(batch, weights, parts)
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error):
                    raise
                short = True
            if not self._add_the_rest(short):
                break
            if self.accumulate >= len(weights):
                raise RuntimeError("a rank ran out of memory with single samples")
            self.accumulate *= 2
            release_memory(self.device)
            self._on_shortage(self.accumulate)
        ranks = dist.get_world_size()
        self.apply([self._gradient(parameter) / ranks for parameter in self._parameters])
        return self._found(batch, parts)

    def _backward(self, batch: Batch | TensorBatch, weights: Array, parts: list[Tensor]) -> None:
        self._additions.clear()
        self._ready = [False] * len(self._order)
        for parameter in self._parameters:
            parameter.grad = None
        shares = self._shares(len(weights))
        for share in shares:
            loss, *found = self._loss(batch, weights, share)
            self._adding = share is shares[-1]
            with stages("backward"):
                torch.autograd.backward(self._scaler.scale(loss), inputs=self._parameters)
            parts.append(torch.stack(found))

    def _found_gradient(self, parameter: Tensor) -> None:
        """Called by the backward pass; starts the additions that are next in order."""
        if not self._adding:
            return
        self._ready[self._found_of[id(parameter)]] = True
        while len(self._additions) < len(self._order) and self._ready[len(self._additions)]:
            self._add(self._gradient(self._order[len(self._additions)]))

    @stages("synchronise")
    def _add_the_rest(self, short: bool) -> bool:
        """Finish the additions; whether any rank ran out of memory."""
        self._adding = False
        for parameter in self._order[len(self._additions) :]:
            if short:
                parameter.grad = torch.zeros_like(parameter)
            self._add(self._gradient(parameter))
        shortages = torch.tensor([float(short)], device=self.device)
        self._add(shortages)
        for addition in self._additions:
            addition.wait()
        return bool(shortages.item())

    def _add(self, tensor: Tensor) -> None:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        self._additions.append(work)

    @staticmethod
    def _gradient(parameter: Tensor) -> Tensor:
        if parameter.grad is None:  # zeros in its place would leave the weights as they are without a word
            raise RuntimeError(f"the backward pass gave no gradient for a parameter of shape {tuple(parameter.shape)}")
        return parameter.grad
