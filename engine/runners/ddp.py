"""Distributed data parallel: one rank per device, each with its own lanes, replay and networks; gradients are averaged.

All ranks take the same number of updates at the same environment step: before each iteration they agree on how many are
due (the minimum over ranks) and on rank 0's order. The run's batch is `batch_size` from each rank. The learning rate is
not rescaled. The epsilon ladder spans the lanes of all ranks. Rank 0 coordinates.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch.distributed import FileStore, Store

from engine import __version__
from engine.agents.allreduce_dqn import AllreduceDQN, RankLostError
from engine.agents.double_dqn import Losses
from engine.buffers.memory import SharedMemory
from engine.config.features import feature
from engine.config.run_config import RunConfig
from engine.config.runners import torchrun_rank
from engine.runners.actor_learner import ActorLearner
from engine.runners.coordination.coordinator import Coordinator
from engine.runners.coordination.reporter import MemberInfo
from engine.runners.coordination.tuning import curriculum_level_at
from engine.runners.links import FrameMailbox, ParentLink
from engine.runners.processes import LEAVE_S, LocalMembers, Role
from engine.runners.rank import JOIN_S, PLAY, STOP, WAIT, Rank, RankJob, Rendezvous, join_ranks
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, config_of_rank, env_steps_of
from engine.runs.run import Run

_EXPLAIN_S, _NAP_S = 2.0, 0.05


@dataclass(frozen=True)
class _LocalRendezvous:
    """The ranks find each other through a file; see `engine.runners.rank.Rendezvous`."""

    path: Path
    ranks: int

    shares_state = True

    def join(self, beat: Callable[[], object] = lambda: None) -> Store:
        store = FileStore(str(self.path), self.ranks)
        ready = store.add("ready", 1)
        while ready < self.ranks:  # their environments may take minutes to begin; to form a group gives no sign of life
            beat()
            time.sleep(_NAP_S)
            ready = store.add("ready", 0)
        return store


class LocalRanks(LocalMembers):
    """The ranks other than 0; see `engine.runners.ddp.Ranks`."""

    shares_state = True

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, mailbox: FrameMailbox) -> None:
        self._link, self._mailbox, self._memory = link, mailbox, SharedMemory()
        super().__init__(SharedState(config.num_processes, self._memory))
        self._run = run
        self._file = run / ".ranks.partial"
        self._file.unlink(missing_ok=True)
        self._rendezvous = _LocalRendezvous(self._file, config.num_processes)

    def start(self, job: RankJob) -> None:
        arguments = (self._run, job, self._memory, self._mailbox, self._rendezvous)
        self.begin(Role("rank", first=1, replaced=False), _work, arguments, self._link)

    def join(self) -> Store:
        return self._rendezvous.join(self._link.beat)

    def why_lost(self) -> str:
        """Wait for the pool's thread, which reports the lost rank and ends this process."""
        time.sleep(_EXPLAIN_S)
        return ""

    def close(self, leave_s: float = LEAVE_S) -> None:
        super().close(leave_s)
        self._file.unlink(missing_ok=True)  # only now: NCCL's monitor reads it as long as the group exists


def _work(
    link: ParentLink,
    index: int,
    restarts: int,
    run: Path,
    job: RankJob,
    memory: SharedMemory,
    mailbox: FrameMailbox,
    rendezvous: _LocalRendezvous,
) -> None:
    """The main function of rank `index` > 0."""
    shared_state = SharedState(rendezvous.ranks, memory)
    start = job.start_of(run, index, restarts, rendezvous.ranks)
    join_ranks(start, shared_state, mailbox, rendezvous, link.log).run()


class Ranks(Rendezvous, MemberInfo, Protocol):
    """The ranks other than 0, wherever they are."""

    @property
    def shared_state(self) -> SharedState:
        """Rank 0's."""

    def start(self, job: RankJob) -> None:
        """Let them begin."""

    def why_lost(self) -> str:
        """After one was lost: the reason, if it becomes known soon, or an empty text."""

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop them; kill those that still run after `leave_s` seconds."""


class Runner:
    """Rank 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: ParentLink, mailbox: FrameMailbox, resume_from: Path | None
    ) -> None:
        self._link = link
        begun_at = env_steps_of(resume_from)
        launched = torchrun_rank()
        self._ranks: Ranks = (
            LocalRanks(run, config, link, mailbox)
            if launched is None
            else feature("torchrun", "torchrun").TorchrunRanks(launched, link)
        )
        shared_state = self._ranks.shared_state
        level = curriculum_level_at(config, resume_from)
        shared_state.open(level)
        seed = None if resume_from is None else [config.seed, 0, begun_at]
        start = Start(run, config, resume_from, learners=config.num_processes, seed=seed)
        own_start = dataclasses.replace(start, config=config_of_rank(config, 0))
        self._actor_learner = ActorLearner(own_start, shared_state, mailbox, link.log, AllreduceDQN)
        self._actor_learner.before_update = link.beat
        learner = self._actor_learner.learner
        self._ranks.start(
            RankJob(
                start=secrets.token_hex(8),
                version=__version__,
                device=learner.agent.device.type,
                created_at=Run(run).record().created_at,
                options=config.options(),
                choices=learner.choices.state(),
                resume_from=None if resume_from is None else str(resume_from),
                begun_at=begun_at,
                level=level,
            )
        )
        self._rank = Rank(self._actor_learner, shared_state, 0, self._ranks, link.beat)
        link.on_beat = self._rank.keep_in_touch
        self._coordinator = Coordinator(start, link, learner, shared_state, self._actor_learner.threads, self._ranks)

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, rank = self._coordinator, self._rank
        losses: list[Losses] = []
        try:
            while coordinator.proceed(losses):
                losses = rank.iterate(WAIT if coordinator.paused else PLAY)
                if coordinator.paused:
                    self._actor_learner.screen.show()
                if rank.stopped:
                    self._await_own_stop()
                    coordinator.stop("another rank was told to stop")
            rank.iterate(STOP)
            rank.leave()
        except RankLostError:
            if reason := self._ranks.why_lost():
                raise RuntimeError(reason) from None
            raise
        self._ranks.close()
        coordinator.finish()

    def _await_own_stop(self) -> None:
        deadline = time.monotonic() + JOIN_S
        while not self._link.stop_waits and time.monotonic() < deadline:
            self._link.beat()
            time.sleep(_NAP_S)

    def close(self) -> None:
        self._ranks.close(leave_s=0)  # after an orderly end they have exited already
        self._actor_learner.close()
        self._coordinator.close()
