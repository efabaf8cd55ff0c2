"""One rank of a DDP run, an actor and a learner whose updates are those of all ranks; and the process group in which
the ranks agree before each iteration.

Rank 0 is the coordinator (`engine.runners.ddp`). The others play on the same machine or under torchrun on any
(`engine.extras.torchrun`). On one machine the ranks share a `SharedState`. On several, each has its own, and with each
agreement rank 0's orders reach the others, and their counts and episodes reach rank 0.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import Store

from engine.agents.allreduce_dqn import AllreduceDQN, RankLostError, needs_all_ranks
from engine.agents.double_dqn import Losses
from engine.config.reading import make_config
from engine.envs.episode import EpisodeRecord
from engine.runners.actor_learner import ActorLearner
from engine.runners.links import FrameMailbox
from engine.runners.shared_state import FIRST_S, SharedState, step_s
from engine.runners.start import Start, config_of_rank
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import user_calls

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
JOIN_S = 5.0
"""Seconds that a rank waits before it leaves because of another one's SIGTERM: if a machine joins, torchrun is about to
send it one as well, and takes a rank that has left before that for one that has finished."""
_TOUCH_S = 5.0
"""Seconds after which rank 0, while it evaluates or saves, lets the others know that it is alive."""


class RankJob(msgspec.Struct, frozen=True):
    """What rank 0 tells the others at their start. Plain values, since they may be on other machines."""

    start: str  # a name that no other start of the ranks has
    version: str  # of mario-tui
    device: str  # "cpu" or "cuda"
    created_at: float  # Unix time, as in the run's record
    options: dict[str, Any]  # those that are set, as in the run's `config.toml`
    choices: dict[str, Any]  # `Choices.state`
    resume_from: str | None  # path of a checkpoint
    begun_at: int  # environment steps of the run at its start, so that a resumed run does not repeat random numbers
    level: float  # of the curriculum

    def start_of(self, run: Path, index: int, restarts: int, ranks: int) -> Start:
        """Return what rank `index` > 0 of `ranks` begins with; `restarts`: how many of this index were lost before."""
        config = config_of_rank(make_config(self.options), index)
        return Start(
            run,
            config,
            None if self.resume_from is None else Path(self.resume_from),
            index,
            ranks,
            seed=[config.seed, index, restarts, self.begun_at],
            choices=self.choices,
        )


class Rendezvous(Protocol):
    """How the ranks of a run form a group."""

    @property
    def shares_state(self) -> bool:
        """Return whether the ranks have one `SharedState`, in memory that they share."""

    def join(self) -> Store:
        """Called by each rank when it is ready; waits for the others. Returns the store to form the group with."""


class Rank:
    """An `ActorLearner` in a process group, which all ranks form at the same time.

    Args:
        rendezvous: where the ranks find each other.
        beat: called while it waits for other ranks.
    """

    def __init__(
        self,
        actor_learner: ActorLearner,
        shared_state: SharedState,
        index: int,
        rendezvous: Rendezvous,
        beat: Callable[[], object] = lambda: None,
    ) -> None:
        self._actor_learner, self._shared_state, self._index, self._beat = actor_learner, shared_state, index, beat
        actor_learner.learner.replay.end_episodes()  # new games start, also if the replay was restored
        agent = actor_learner.learner.agent
        assert isinstance(agent, AllreduceDQN)
        self._agent = agent
        self._shares_state = rendezvous.shares_state
        self._step_s = user_calls.step_s  # in which a rank answers nobody
        answer_s = SILENCE_S if index else 2 * FIRST_S + step_s(actor_learner.config)
        self._patience_s = answer_s + self._step_s
        self._episodes_sent = 0
        self.stopped = False
        """Whether the ranks have agreed to stop. They do not wait for each other any more."""
        self._form_group(rendezvous.join())
        self._iterating, self._agreed_at = False, time.monotonic()

    def _form_group(self, store: Store) -> None:
        if self._shares_state:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        device, ranks = self._agent.device, self._shared_state.members
        nccl = device.type == "cuda"
        if nccl:
            torch.cuda.set_device(device)
        limit = timedelta(seconds=(_NCCL_S if nccl else _GRADIENTS_S) + self._step_s)
        timeout = _NEVER if self._shares_state else limit
        backend = "nccl" if nccl else "gloo"
        dist.init_process_group(backend, store=store, rank=self._index, world_size=ranks, timeout=timeout)
        # On the CPU, whatever device the gradients are on.
        self._control = dist.new_group(backend="gloo", timeout=_NEVER)
        self._agent.broadcast()
        dist.barrier(self._control)

    def iterate(self, order: int = PLAY, silence_s: float = SILENCE_S) -> list[Losses]:
        """Agree with the other ranks, then act and learn if that was the order.

        `order` is STOP if this rank was told to stop. Otherwise it counts on rank 0 only, as does `silence_s`: the
        longest time until rank 0 agrees again. Raises `RankLostError` if another rank does not answer.
        """
        self._iterating = True
        learner = self._actor_learner.learner
        due, order = self._agree(learner.pace.due(), order, silence_s)
        losses: list[Losses] = []
        if order == PLAY:
            losses = self._actor_learner.iterate(due)
            self._shared_state.updates_of[self._index] = learner.updates
        self._iterating, self._agreed_at = False, time.monotonic()
        return losses

    def keep_in_touch(self, within_s: float) -> None:
        """Called with rank 0's heartbeats, and the seconds until the next one: others that wait during an evaluation
        must not take it for lost."""
        due = within_s > SILENCE_S or time.monotonic() - self._agreed_at > _TOUCH_S
        if due and not self._iterating and threading.current_thread() is threading.main_thread():
            self.iterate(WAIT, max(within_s, SILENCE_S))

    def leave(self) -> None:
        """Leave the group, which has agreed to stop."""
        dist.destroy_process_group()

    def run(self, told_to_stop: Callable[[], bool] = lambda: False) -> None:
        """As a rank other than 0: play and learn until the ranks agree to stop, then close.

        `told_to_stop`: whether this rank wants them to.
        """
        while not self.stopped:
            self.iterate(STOP if told_to_stop() else PLAY)
        self.leave()
        self._actor_learner.close()

    @stopwatch("synchronise")
    def _agree(self, due: int, order: int, silence_s: float) -> tuple[int, int]:
        """Agree with the other ranks.

        Args:
            due: updates due on this rank.
            order: rank 0's, or STOP from any rank.
            silence_s: rank 0's longest time until it agrees again.

        Returns the minimum over ranks of `due`, and the order. Buffers of networks become those of rank 0.
        """
        if self.stopped:
            return 0, STOP
        state, index = self._shared_state, self._index
        buffers = self._agent.buffer_numbers()
        row = np.concatenate([[due, order, silence_s], buffers])
        if not self._shares_state:
            ended = int(state.episodes_of[index]) - self._episodes_sent if index else 0
            row = np.concatenate([row, state.orders(), state.row(index), [ended]])
        rows = self._gather(row)
        if index:
            self._patience_s = float(rows[0, 2]) + self._step_s
            self._agent.load_buffers(rows[0, 3 : 3 + buffers.size])
        if not self._shares_state:
            self._take_over(rows[:, 3 + buffers.size :])
        self.stopped = bool((rows[:, 1] == STOP).any())
        return int(rows[:, 0].min()), STOP if self.stopped else int(rows[0, 1])

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


def join_ranks(
    start: Start, shared_state: SharedState, mailbox: FrameMailbox, rendezvous: Rendezvous, log: Callable[[str], None]
) -> Rank:
    """Build rank `start.index` > 0, and wait until all ranks have formed a group."""
    actor_learner = ActorLearner(start, shared_state, mailbox, log, AllreduceDQN)
    return Rank(actor_learner, shared_state, start.index, rendezvous)
