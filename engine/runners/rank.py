"""One rank of a DDP run: an actor and a learner whose updates are those of all ranks.

Rank 0 is the coordinator (`engine.runners.ddp`). The others play on the same machine
(`engine.runners.local_ranks`) or on any (`engine.runners.torchrun`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from torch.distributed import Store

from engine.agents import Losses
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.config.games import import_plugins
from engine.config.reading import make_config
from engine.runners.actor_learner import ActorLearner
from engine.runners.device import config_of_rank
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.heartbeat import FIRST_S, step_s
from engine.runners.rank_group import PLAY, SILENCE_S, STOP, WAIT, RankGroup
from engine.runners.shared_state import SharedState
from engine.runners.start import Start

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
        """What rank `index` > 0 of `ranks` begins with; `restarts`: how many of this index were lost before."""
        import_plugins()
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
        """Whether the ranks have one `SharedState`, in memory that they share."""

    def join(self) -> Store:
        """Called by each rank when it is ready; waits for the others. Returns the store to form the group with."""


class Rank:
    """An `ActorLearner` in a process group."""

    def __init__(
        self,
        actor_learner: ActorLearner,
        shared_state: SharedState,
        index: int,
        rendezvous: Rendezvous,
        beat: Callable[[], object] = lambda: None,
    ) -> None:
        """`beat`: called while it waits for other ranks."""
        self._actor_learner, self._shared_state, self._index = actor_learner, shared_state, index
        actor_learner.learner.replay.end_episodes()  # new games start, also if the replay was restored
        agent = actor_learner.learner.agent
        assert isinstance(agent, AllreduceDQN)
        self._iterating, self._agreed_at = True, time.monotonic()
        self._group = RankGroup(
            rendezvous.join(),
            index,
            agent,
            shared_state,
            shares_state=rendezvous.shares_state,
            answer_s=2 * FIRST_S + step_s(actor_learner.config),
            beat=beat,
        )
        self._iterating = False

    @property
    def stopped(self) -> bool:
        """Whether the ranks have agreed to stop."""
        return self._group.stopped

    def iterate(self, order: int = PLAY, silence_s: float = SILENCE_S) -> list[Losses]:
        """Agree with the other ranks, then act and learn if that was the order.

        `order` is STOP if this rank was told to stop. Otherwise it counts on rank 0 only, as does `silence_s`: the
        longest time until rank 0 agrees again.
        """
        self._iterating = True
        learner = self._actor_learner.learner
        due, order = self._group.agree(learner.pace.due(), order, silence_s)
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
        if due and not self._iterating:
            self.iterate(WAIT, max(within_s, SILENCE_S))

    def leave(self) -> None:
        """Leave the group, which has agreed to stop."""
        self._group.close()

    def run(self, told_to_stop: Callable[[], bool] = lambda: False) -> None:
        """As a rank other than 0: play and learn until the ranks agree to stop, then close.

        `told_to_stop`: whether this rank wants them to.
        """
        while not self.stopped:
            self.iterate(STOP if told_to_stop() else PLAY)
        self.leave()
        self._actor_learner.close()


def join_ranks(
    start: Start,
    shared_state: SharedState,
    mailbox: FrameMailbox,
    rendezvous: Rendezvous,
    log: Callable[[str], None],
) -> Rank:
    """Build rank `start.index` > 0, and wait until all ranks have formed a group."""
    actor_learner = ActorLearner(start, shared_state, mailbox, log, AllreduceDQN)
    return Rank(actor_learner, shared_state, start.index, rendezvous)
