"""Ranks of a DDP run in processes of this machine, with `SharedState` in memory that they share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]

from engine.buffers import SharedMemory
from engine.config.run_config import RunConfig
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostLink
from engine.runners.rank import RankJob, join_ranks
from engine.runners.shared_state import SharedState
from engine.runners.worker_pool import LEAVE_S, WorkerPool


@dataclass(frozen=True)
class _LocalMeeting:
    """The ranks meet in a file; see `engine.runners.rank.Meeting`."""

    path: Path
    ranks: int

    apart = False
    timeout_s = 24 * 3600.0
    """The pool notices lost ranks much earlier. One that the user has suspended is not lost."""

    def meet(self) -> Store:
        return FileStore(str(self.path), self.ranks)


class LocalRanks:
    """The ranks other than 0; see `engine.runners.ddp.Ranks`."""

    cluster = None

    def __init__(self, run: Path, config: RunConfig, link: HostLink, screen: FrameMailbox) -> None:
        self._link, self._screen, self._memory = link, screen, SharedMemory()
        self.shared_state = SharedState(config.num_processes, self._memory)
        self._pool: WorkerPool | None = None
        meeting = run / ".ranks.partial"
        meeting.unlink(missing_ok=True)
        self.meeting = _LocalMeeting(meeting, config.num_processes)

    def start(self, job: RankJob) -> None:
        arguments = (job, self._memory, self._screen, self.meeting)
        self._pool = WorkerPool("rank", _work, arguments, self.shared_state, self._link, first=1, replace=False)

    def restarts(self, index: int) -> int:
        return 0 if self._pool is None else self._pool.restarts(index)

    def close(self, leave_s: float = LEAVE_S) -> None:
        self.shared_state.stop()
        if self._pool is not None:
            self._pool.close(leave_s)
        self.meeting.path.unlink(missing_ok=True)  # only now: NCCL's monitor reads it as long as the group exists


def _work(
    link: HostLink,
    index: int,
    restarts: int,
    job: RankJob,
    memory: SharedMemory,
    screen: FrameMailbox,
    meeting: _LocalMeeting,
) -> None:
    """The main function of rank `index` > 0."""
    join_ranks(job, index, restarts, SharedState(meeting.ranks, memory), screen, meeting, link.log).play()
