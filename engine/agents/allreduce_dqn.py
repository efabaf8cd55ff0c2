"""Double DQN on several ranks: each learns from its own batch, and all take the same step with the mean gradient.

Gradients are all-reduced in buckets of several parameters while the backward pass is still computing the others (Li et
al. 2020, arXiv:2006.15704). Every rank starts the same reductions in the same order. A rank that runs out of memory
contributes zeros and reports it, and then all ranks repeat the update in smaller parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.agents.double_dqn import DoubleDQN, Share, UpdateResult, result_of
from engine.buffers.device.storage import Array, TensorBatch
from engine.buffers.frames import Batch
from engine.runtime.devices import is_out_of_memory
from engine.runtime.stopwatch import stopwatch

_BUCKET_BYTES = 2**20
"""Gradients in a bucket. Each reduction costs the latency of the network, so few are better than many."""


class RankLostError(RuntimeError):
    """An operation of all ranks failed: one of them is gone or cut off."""

    def __init__(self) -> None:
        super().__init__("another rank was lost")


@contextlib.contextmanager
def needs_all_ranks() -> Iterator[None]:
    """Turns the errors of collective operations, which are plain `RuntimeError`, into `RankLostError`."""
    try:
        yield
    except RuntimeError as error:
        raise RankLostError from error


class AllreduceDQN(DoubleDQN):
    """`DoubleDQN` with collective updates, on the default group of torch.distributed.

    The loss is the mean over a rank's batch, so the mean gradient is that of a single batch with the samples of all
    ranks. Its norm is clipped after averaging.
    """

    def __init__(self, network: nn.Module, target: nn.Module, **options: Any) -> None:
        super().__init__(network, target, **{**options, "threads": 1})
        self._buckets = _buckets(list(reversed(self._parameters)))  # roughly the order of the backward pass
        self._bucket_of = {id(parameter): place for place, bucket in enumerate(self._buckets) for parameter in bucket}
        self._missing = [0] * len(self._buckets)
        """Gradients that each bucket still needs before its reduction can start."""
        self._reduced: list[Tensor] = []
        self._reductions: list[dist.Work] = []
        self._reducing = False
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]

    def broadcast(self) -> None:
        """Copy the state of rank 0 (weights, target, optimiser, number of updates) to all ranks."""
        updates = torch.tensor([self.updates], device=self.device)
        for tensor in (*self.tensors(), updates):
            place = tensor.detach().to(self.device)
            dist.broadcast(place, 0)
            with torch.no_grad():
                tensor.copy_(place)
        self.updates = int(updates.item())

    def buffer_numbers(self) -> NDArray[np.float64]:
        """What `buffers` hold, [numbers]."""
        return torch.cat(
            [torch.zeros(0, dtype=torch.float64), *(each.flatten().double().cpu() for each in self.buffers)]
        ).numpy()

    def load_buffers(self, numbers: NDArray[np.float64]) -> None:
        """Load the `buffer_numbers` of another rank."""
        parts = torch.split(torch.from_numpy(numbers), [each.numel() for each in self.buffers])
        for buffer, part in zip(self.buffers, parts, strict=True):
            buffer.copy_(part.view_as(buffer))

    @stopwatch("synchronise")
    def common_weights(self, weights: Array, scales: Array) -> Tensor:
        """Relative to the largest of all ranks. Otherwise a rank whose own largest is small would count for too much in
        the mean gradient."""
        whole = torch.as_tensor(weights, device=self.device) * torch.as_tensor(scales, device=self.device)
        largest = whole.max()
        with needs_all_ranks():
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        return (whole / largest).float()

    def update(self, batch: Batch | TensorBatch, weights: Array, shares: list[Share] | None = None) -> UpdateResult:
        """One optimiser step of all ranks with the mean of their gradients. shares: of `begin`.

        Raises `RuntimeError` if a rank runs out of memory even with single samples.
        """
        while True:
            parts: list[Tensor] = []
            out_of_memory = False
            try:
                self._backward(batch, weights, shares or self.begin(batch), parts)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                out_of_memory = True
            if not self._finish_reductions(out_of_memory):
                break
            if not self._split(len(weights)):
                raise RuntimeError("a rank ran out of memory even with single samples")
            shares = None  # they are too large
        ranks = dist.get_world_size()
        self.apply([gradient / ranks for gradient in self._reduced_gradients()])
        return result_of(batch, torch.cat(parts, 1))

    def _backward(self, batch: Batch | TensorBatch, weights: Array, shares: list[Share], parts: list[Tensor]) -> None:
        self._reductions.clear()
        self._reduced.clear()
        self._missing = [len(bucket) for bucket in self._buckets]
        for parameter in self._parameters:
            parameter.grad = None
        for share in shares:
            loss, found = self._loss(batch, weights, share)
            self._reducing = share is shares[-1]
            with stopwatch("backward"):
                torch.autograd.backward(self._scaler.scale(loss), inputs=self._parameters)
            parts.append(found)

    def _on_gradient(self, parameter: Tensor) -> None:
        """Called by the backward pass for each gradient; starts the reductions that are next in order."""
        if not self._reducing:
            return
        self._missing[self._bucket_of[id(parameter)]] -= 1
        while len(self._reduced) < len(self._buckets) and not self._missing[len(self._reduced)]:
            self._reduce_next_bucket()

    @stopwatch("synchronise")
    def _finish_reductions(self, out_of_memory: bool) -> bool:
        """Start the remaining reductions and wait for all; return whether any rank ran out of memory."""
        self._reducing = False
        while len(self._reduced) < len(self._buckets):
            if out_of_memory:
                for parameter in self._buckets[len(self._reduced)]:
                    parameter.grad = torch.zeros_like(parameter)
            self._reduce_next_bucket()
        any_out_of_memory = torch.tensor([float(out_of_memory)], device=self.device)
        self._start_reduction(any_out_of_memory)
        with needs_all_ranks():
            for reduction in self._reductions:
                reduction.wait()
            return bool(any_out_of_memory.item())  # NCCL's reductions end only here

    def _reduce_next_bucket(self) -> None:
        gradients = [self._gradient(parameter) for parameter in self._buckets[len(self._reduced)]]
        self._reduced.append(
            torch.cat([gradient.flatten() for gradient in gradients]) if gradients[1:] else gradients[0]
        )
        self._start_reduction(self._reduced[-1])

    def _start_reduction(self, tensor: Tensor) -> None:
        with needs_all_ranks():
            work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        self._reductions.append(work)

    def _reduced_gradients(self) -> list[Tensor]:
        """The sums over ranks, in the order of the parameters."""
        found: dict[int, Tensor] = {}
        for bucket, reduced in zip(self._buckets, self._reduced, strict=True):
            parts = torch.split(reduced.flatten(), [parameter.numel() for parameter in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                found[id(parameter)] = part.view_as(parameter)
        return [found[id(parameter)] for parameter in self._parameters]

    @staticmethod
    def _gradient(parameter: Tensor) -> Tensor:
        if parameter.grad is None:  # substituting zeros would hide the error: the weights would not change
            raise RuntimeError(f"the backward pass gave no gradient for a parameter of shape {tuple(parameter.shape)}")
        return parameter.grad


def _buckets(parameters: list[Tensor]) -> list[list[Tensor]]:
    """The parameters in their order, divided into buckets of at most `_BUCKET_BYTES`; a larger one is alone."""
    buckets: list[list[Tensor]] = [[]]
    size = 0
    for parameter in parameters:
        bytes_ = parameter.numel() * parameter.element_size()
        if buckets[-1] and size + bytes_ > _BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += bytes_
    return buckets
