"""Ranks of a DDP run in processes of this machine, with `SharedState` in memory that they share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import FileStore, Store

from engine.buffers import SharedMemory
from engine.config.run_config import RunConfig
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.member_pool import LEAVE_S, LocalMembers, Role
from engine.runners.parent_link import ParentLink
from engine.runners.rank import RankJob, join_ranks
from engine.runners.shared_state import SharedState

_EXPLAIN_S = 2.0


@dataclass(frozen=True)
class _LocalRendezvous:
    """The ranks find each other through a file; see `engine.runners.rank.Rendezvous`."""

    path: Path
    ranks: int

    shares_state = True

    def join(self) -> Store:
        return FileStore(str(self.path), self.ranks)


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
        return self._rendezvous.join()

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
