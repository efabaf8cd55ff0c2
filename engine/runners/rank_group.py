"""The process group of a run's ranks: what they agree on before each iteration, and what they tell each other.

On one machine the ranks share a `SharedState`. On several, each has its own, and with each agreement rank 0's orders
reach the others, and their counts and episodes reach rank 0.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import Store  # type: ignore[attr-defined]

from engine.agents.allreduce_dqn import AllreduceDQN, needs_all_ranks
from engine.runners.shared_state import SharedState
from engine.runtime.stopwatch import stopwatch

GO_ON, WAIT, STOP = 0, 1, 2
_NAP_S = 0.0002
_NCCL_S = 60.0
"""Least timeout of NCCL, which connects in its first operation and ends the process when that takes longer."""
_RANK_0_S = 60.0
"""Seconds that the other ranks wait for rank 0 at least, which says every few seconds that it is alive."""


class RankGroup:
    """Rank `index` of a group that all ranks create at the same time.

    Args:
        store: where the ranks meet; one of `torch.distributed`'s.
        apart: whether the ranks do not share `shared_state`.
        timeout_s: seconds after which a rank that does not answer is lost: operations then raise `RankLostError`. The
            others wait longer for rank 0, which evaluates and saves in between.
    """

    def __init__(
        self,
        store: Store,
        index: int,
        agent: AllreduceDQN,
        shared_state: SharedState,
        *,
        apart: bool,
        timeout_s: float,
    ) -> None:
        self._index, self._shared_state, self._apart = index, shared_state, apart
        self._patience_s = max(timeout_s, _RANK_0_S) if index else timeout_s
        self._episodes_sent = 0
        self.stopped = False
        """Whether the ranks have agreed to stop. They do not wait for each other any more."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        if agent.device.type == "cuda":
            torch.cuda.set_device(agent.device)
        backend = "nccl" if agent.device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend,
            store=store,
            rank=index,
            world_size=shared_state.members,
            timeout=timedelta(seconds=max(timeout_s, _NCCL_S) if backend == "nccl" else timeout_s),
        )
        # On the CPU, whatever device the gradients are on.
        self._control = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._patience_s))
        agent.broadcast()
        dist.barrier(self._control)

    @stopwatch("synchronise")
    def agree(self, due: int, order: int) -> tuple[int, int]:
        """The minimum over ranks of the updates `due`, and rank 0's `order`, or STOP if that is any rank's."""
        if self.stopped:
            return 0, STOP
        state, index = self._shared_state, self._index
        row = np.array([due, order], np.float64)
        if self._apart:
            ended = int(state.counts[index, 2]) - self._episodes_sent if index else 0
            row = np.concatenate([row, state.orders(), state.row(index), [ended]])
        rows = self._gather(row)
        if self._apart:
            self._take_over(rows[:, 2:])
        self.stopped = bool((rows[:, 1] == STOP).any())
        return int(rows[:, 0].min()), STOP if self.stopped else int(rows[0, 1])

    def close(self) -> None:
        """Leave the group in order."""
        dist.destroy_process_group()

    def _take_over(self, rows: NDArray[np.float64]) -> None:
        state, index = self._shared_state, self._index
        orders = state.orders().size
        if index:
            state.follow(rows[0, :orders])
        ended = rows[:, -1].astype(np.int64)
        if not index:
            for member, row in enumerate(rows[1:, orders:-1], 1):
                state.set_row(member, row)
        if ended.any():
            own = state.episodes_after(index, self._episodes_sent)
            episodes = np.zeros((int(ended.max()), own.shape[1]))
            if index:
                episodes[: len(own)] = own
                self._episodes_sent += int(ended[index])
            gathered = self._gather(episodes)
            if not index:
                for member, count in enumerate(ended):
                    state.add_episodes(member, gathered[member, :count])

    def _gather(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """The arrays of all ranks, stacked. Gives heartbeats while it waits: for rank 0's evaluation, say."""
        shared_state, index = self._shared_state, self._index
        gathered = torch.empty((shared_state.members, *own.shape), dtype=torch.float64)
        before = time.monotonic()
        with needs_all_ranks():
            pending = dist.all_gather(
                list(gathered.unbind()), torch.from_numpy(own), group=self._control, async_op=True
            )
            assert pending is not None
            while not pending.is_completed():
                shared_state.beat(index)
                time.sleep(_NAP_S)
            pending.wait()
        shared_state.waited[index] += time.monotonic() - before
        shared_state.beat(index)
        return gathered.numpy()
