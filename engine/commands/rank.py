"""A rank other than 0 that torchrun has started; see `engine.runners.torchrun_ranks`.

Its options come from rank 0. SIGTERM and SIGINT, which torchrun passes on, stop the whole run in order. Before the
ranks have met there is nothing to stop, and they end the process at once.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading

from engine.config.torchrun import torchrun_rank
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.rank import join_ranks
from engine.runners.shared_state import SharedState
from engine.runners.torchrun_ranks import TorchrunMeeting
from engine.runtime.parent import killed_with_parent
from engine.runtime.text import printable_stream


def main() -> None:
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    killed_with_parent()
    rank = torchrun_rank()
    assert rank is not None
    stop = threading.Event()
    meeting = TorchrunMeeting(rank)
    job = meeting.job()
    if rank.local_index == 0:
        meeting.report_load()

    def log(text: str) -> None:
        print(f"rank {rank.index}: {text}", file=sys.stderr)

    screen = FrameMailbox(multiprocessing.get_context("spawn"))
    joined = join_ranks(job, rank.index, rank.restarts, SharedState(rank.ranks), screen, meeting, log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    joined.play(stop.is_set)


if __name__ == "__main__":
    main()
