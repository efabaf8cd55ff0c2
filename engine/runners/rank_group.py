"""The process group of a run's ranks: what they agree on before each iteration, and what they tell each other.

On one machine the ranks share a `SharedState`. On several, each has its own, and with each agreement rank 0's orders
reach the others, and their counts and episodes reach rank 0.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import Store

from engine.agents.allreduce_dqn import AllreduceDQN, RankLostError, needs_all_ranks
from engine.envs.episode import EpisodeRecord
from engine.runners.shared_state import SharedState
from engine.runtime.stopwatch import stopwatch

PLAY, WAIT, STOP = 0, 1, 2
SILENCE_S = 60.0
"""Seconds that the other ranks wait for rank 0, unless it has announced a longer silence."""
_NAP_S = 0.0002
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_GRADIENTS_S = 18.0
"""Seconds that a rank waits for others in an update: more than `FIRST_S`, which the first one may take, and less than
the host of rank 0 waits for a sign of life (`SILENCE_LIMIT_S`)."""
_NCCL_S = 60.0
"""The same for NCCL, which connects in its first operation and ends the process when that takes longer."""
_NEVER = timedelta(days=1)
"""For operations whose end is awaited elsewhere. On one machine that is the pool: a suspended rank is not lost."""


class RankGroup:
    """Rank `index` of a group that all ranks create at the same time.

    Args:
        store: where the ranks find each other.
        shares_state: whether the ranks have one `SharedState`; then something else notices lost ranks.
        answer_s: seconds after which a rank that does not answer rank 0 is lost; `RankLostError` is raised then.
        beat: called while it waits.
    """

    def __init__(
        self,
        store: Store,
        index: int,
        agent: AllreduceDQN,
        shared_state: SharedState,
        *,
        shares_state: bool,
        answer_s: float,
        beat: Callable[[], object],
    ) -> None:
        self._index, self._shared_state, self._shares_state, self._beat = index, shared_state, shares_state, beat
        self._patience_s = SILENCE_S if index else answer_s
        self._episodes_sent = 0
        self.stopped = False
        """Whether the ranks have agreed to stop. They do not wait for each other any more."""
        if shares_state:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        nccl = agent.device.type == "cuda"
        if nccl:
            torch.cuda.set_device(agent.device)
        timeout = _NEVER if shares_state else timedelta(seconds=_NCCL_S if nccl else _GRADIENTS_S)
        dist.init_process_group(
            "nccl" if nccl else "gloo", store=store, rank=index, world_size=shared_state.members, timeout=timeout
        )
        # On the CPU, whatever device the gradients are on.
        self._control = dist.new_group(backend="gloo", timeout=_NEVER)
        agent.broadcast()
        dist.barrier(self._control)

    @stopwatch("synchronise")
    def agree(self, due: int, order: int, silence_s: float) -> tuple[int, int]:
        """Agree with the other ranks.

        Args:
            due: updates due on this rank.
            order: rank 0's, or STOP from any rank.
            silence_s: rank 0's longest time until it agrees again.

        Returns the minimum over ranks of `due`, and the order.
        """
        if self.stopped:
            return 0, STOP
        state, index = self._shared_state, self._index
        row = np.array([due, order, silence_s], np.float64)
        if not self._shares_state:
            ended = int(state.episodes_of[index]) - self._episodes_sent if index else 0
            row = np.concatenate([row, state.orders(), state.row(index), [ended]])
        rows = self._gather(row)
        if index:
            self._patience_s = float(rows[0, 2])
        if not self._shares_state:
            self._take_over(rows[:, 3:])
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
            episodes = np.zeros((int(ended.max()), EpisodeRecord.NUMBERS))
            if index:
                own = state.episodes_after(index, self._episodes_sent)
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
                self._beat()
                if not self._shares_state and time.monotonic() - before > self._patience_s:
                    raise RankLostError
                time.sleep(_NAP_S)
            pending.wait()
        shared_state.waited[index] += time.monotonic() - before
        shared_state.beat(index)
        return gathered.numpy()
