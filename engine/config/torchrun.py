"""What torchrun tells the processes that it starts, in their environment.

See "Environment Variables" of https://docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from engine.config.run_name import ACCEPTED, is_run_name
from engine.errors import UserError

_NO_NAME = "none"
"""torchrun's `--rdzv-id` if none is given."""


@dataclass(frozen=True)
class TorchrunRank:
    """The rank of this process. Processes that a rank starts inherit it: rank 0's host and runner."""

    index: int
    ranks: int
    """Of the whole run."""
    local_index: int
    local_ranks: int
    """On this machine."""
    name: str
    """torchrun's `--rdzv-id`."""
    restarts: int
    """Failures after which torchrun on this machine has started its ranks again."""


def torchrun_rank() -> TorchrunRank | None:
    """The rank that this process belongs to; None if torchrun did not start it.

    Raises `UserError` if the job has no name that a folder can have.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return None
    if name == _NO_NAME or not is_run_name(name):
        raise UserError(
            f"torchrun: --rdzv-id must be given: it names the run, so that a restart finds it; accepted: {ACCEPTED}, "
            f"got {name!r}"
        )
    index, ranks, local_index, local_ranks, restarts = (
        int(os.environ[variable])
        for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    )
    return TorchrunRank(index, ranks, local_index, local_ranks, name, restarts)


def is_first_here(index: int) -> bool:
    """Whether process `index` of a run is the first one on its machine."""
    rank = torchrun_rank()
    return index == 0 if rank is None else rank.local_index == 0


def processes_here(processes: int) -> int:
    """How many of a run's `processes` are on this machine."""
    rank = torchrun_rank()
    return processes if rank is None else min(processes, rank.local_ranks)
