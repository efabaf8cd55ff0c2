"""The steps of an agent on CUDA whose data come from the host: acting, and learning from a replay on the host.

Each is copied into tensors that never move, so that the operations on them can be recorded and launched as one graph.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.buffers.device.storage import Array, TensorBatch
from engine.buffers.frames import Batch
from engine.runtime.devices import GraphedCall
from engine.runtime.stopwatch import stopwatch

if TYPE_CHECKING:
    from engine.agents.double_dqn import DoubleDQN


class _Inbox:
    """A tensor on a device for arrays of one shape and dtype, filled through pinned memory: the host does not wait for
    the copy. Fill it again only after the device has been waited for."""

    def __init__(self, like: Tensor, device: torch.device) -> None:
        self._pinned = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        self.tensor = torch.empty(like.shape, dtype=like.dtype, device=device)

    def fits(self, array: Tensor) -> bool:
        return array.shape == self.tensor.shape and array.dtype == self.tensor.dtype

    def fill(self, array: Tensor) -> None:
        if array.device.type == "cpu":
            array = self._pinned.copy_(array)
        self.tensor.copy_(array, non_blocking=True)


class GraphedSteps:
    """Steps of `agent`, which must be on CUDA. Graphs are recorded anew when the shape of their data changes."""

    def __init__(self, agent: DoubleDQN) -> None:
        self._agent = agent
        self._obs: _Inbox | None = None
        self._q = torch.empty(0)
        self._act: GraphedCall
        self.forget_updates()

    def forget_updates(self) -> None:
        """Release the graphs of updates, such as when memory runs out."""
        self._batch: dict[str, _Inbox] = {}
        self._gradients: list[Tensor] = []
        self._found = torch.empty(0)
        self._learn: GraphedCall | None = None
        self._steps: dict[bool, GraphedCall] = {}

    def q_values(self, obs: Tensor) -> Tensor:
        """See `DoubleDQN.q_values`."""
        if self._obs is None or not self._obs.fits(obs):
            self._obs = _Inbox(obs, self._agent.device)
            self._act = GraphedCall(self._compute_q, self._agent.device)
        self._obs.fill(obs)
        self._act()
        return self._q.cpu()

    def gradients(self, batch: Batch, weights: Array) -> tuple[list[Tensor], Tensor]:
        """`DoubleDQN.gradients` of a batch on the host. The next call overwrites the results."""
        arrays = {field.name: getattr(batch, field.name) for field in fields(batch)} | {"weights": weights}
        given = {name: torch.as_tensor(array) for name, array in arrays.items() if array is not None}
        if self._batch.keys() != given.keys() or not all(self._batch[name].fits(given[name]) for name in given):
            self.forget_updates()
            self._batch = {name: _Inbox(tensor, self._agent.device) for name, tensor in given.items()}
            self._learn = GraphedCall(self._compute_gradients, self._agent.device)
        assert self._learn is not None
        with stopwatch("transfer"):
            for name, tensor in given.items():
                self._batch[name].fill(tensor)
        with stopwatch("forward"):  # and backward
            self._learn()
        return self._gradients, self._found

    def holds(self, gradients: list[Tensor]) -> bool:
        """Return whether these are the result of a recorded `gradients`, which never move."""
        return gradients is self._gradients and self._learn is not None and self._learn.recorded

    @stopwatch("optimise")
    def step(self, *, move_target: bool) -> None:
        """`DoubleDQN.step` with gradients that this holds."""
        if move_target not in self._steps:
            self._steps[move_target] = GraphedCall(lambda: self._take_step(move_target), self._agent.device)
        self._steps[move_target]()

    def _compute_q(self) -> None:
        assert self._obs is not None
        self._q = self._agent.online_q(self._obs.tensor)

    def _compute_gradients(self) -> None:
        tensors = {name: inbox.tensor for name, inbox in self._batch.items()}
        weights = tensors.pop("weights")
        self._gradients, self._found = self._agent.gradients(TensorBatch(**tensors), weights)

    def _take_step(self, move_target: bool) -> None:
        self._agent.step(self._gradients, move_target=move_target)
