"""A rank other than 0 that torchrun has started: `python -m engine.extras.torchrun.rank RUN`.

RUN is the folder of the run; the options come from rank 0 (`engine.extras.torchrun`). The signals that torchrun
passes on stop the whole run in order. Before the ranks have formed a group there is nothing to stop, and they end the
process at once.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from pathlib import Path

from engine.agents.allreduce_dqn import RankLostError
from engine.config.runners import torchrun_rank
from engine.errors import UserError
from engine.extras.torchrun import TorchrunFollower, check_machine
from engine.protocol.framing import failure_of
from engine.runners.links import FrameMailbox
from engine.runners.rank import JOIN_S, join_ranks
from engine.runners.shared_state import SharedState
from engine.runtime.processes import ENDING, handle_here, killed_with_parent, take_children
from engine.runtime.text import printable_stream
from engine.runtime.threads import user_calls


def main(run: Path) -> int:
    """Returns the exit status: 0 if the ranks have agreed to stop, 1 if one was lost, 2 if this machine is unfit."""
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    killed_with_parent()
    take_children()
    rank = torchrun_rank()
    assert rank is not None
    follower = TorchrunFollower(rank)
    job = follower.job()

    def log(text: str) -> None:
        print(f"rank {rank.index}: {text}", file=sys.stderr)

    def hangs(text: str) -> None:
        follower.fail(text)
        log(text)
        os._exit(1)

    user_calls.fail = hangs
    stop = threading.Event()
    mailbox = FrameMailbox(multiprocessing.get_context("spawn"))
    try:
        start, shared_state = job.start_of(run, rank.index, rank.restarts, rank.ranks), SharedState(rank.ranks)
        check_machine(job, start)
        shared_state.open(job.level)
        joined = join_ranks(start, shared_state, mailbox, follower, log)
        handle_here(dict.fromkeys(ENDING, lambda *_: stop.set()))
        if rank.local_index == 0:
            follower.report_load()
        joined.run(stop.is_set)
    except RankLostError as error:
        log(str(error))
        return 1
    except Exception as error:
        follower.fail(failure_of(error).reason)
        if not isinstance(error, UserError):
            raise
        log(str(error))
        return 2
    finally:
        follower.close()
    stop.wait(JOIN_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
