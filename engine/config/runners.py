"""What the program knows of each runner without starting it, and of torchrun, which may start one.

A row here, and a module of the same name in `engine.runners` with a `Runner`, make a runner: command line, form, memory
budget, panels and checks follow from the row. Importing this imports nothing heavy.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from engine.errors import UserError


@dataclass(frozen=True, kw_only=True)
class RunnerInfo:
    """A runner's processes, and the options that only some runners have."""

    name: str
    help: str
    """Continues the name in the help of `--runner`."""
    member: str
    """What a process that plays is called."""
    count: str | None = None
    """The option that tells how many processes play; without one a single process does."""
    options: frozenset[str]
    """Options that not every runner has. An option that no runner lists belongs to all."""
    learner: str | None = None
    """What the process is called that learns and does not play, from one replay to which all members append. Without
    one each member learns, from a replay of its own."""
    shares_weights: bool = False
    """Whether all members update the same weights, on one device."""
    averages_gradients: bool = False
    """Whether an update takes the mean of all members' gradients: each has part of the batch, and its own device."""
    under_torchrun: bool = False
    """Whether torchrun may start the members."""

    @property
    def coordinator(self) -> str:
        """Return what the process that coordinates the others is called."""
        return self.learner or (self.member if self.count is None else f"{self.member} 0")


_EACH_LEARNS = frozenset({"async_envs", "replay_device"})
RUNNERS = {
    info.name: info
    for info in (
        RunnerInfo(
            name="single", help="one process", member="player", options=_EACH_LEARNS | {"guide", "checkpoint_replay"}
        ),
        RunnerInfo(
            name="parallel",
            help="workers that share a model",
            member="worker",
            count="num_processes",
            options=_EACH_LEARNS | {"num_processes", "pull_every"},
            shares_weights=True,
        ),
        RunnerInfo(
            name="ddp",
            help="one rank per device, gradients averaged",
            member="rank",
            count="num_processes",
            options=_EACH_LEARNS | {"num_processes"},
            averages_gradients=True,
            under_torchrun=True,
        ),
        RunnerInfo(
            name="apex",
            help="actors and a learner",
            member="actor",
            count="num_actors",
            options=frozenset({"num_actors", "pull_every", "ray", "actors_ahead", "learner_ahead"}),
            learner="learner",
        ),
    )
}
"""Every runner by its name; the first one is the default."""

_OF_SOME = frozenset[str]().union(*(info.options for info in RUNNERS.values()))


@cache
def runners_with(name: str) -> tuple[str, ...]:
    """The runners that have an option."""
    return tuple(each for each, info in RUNNERS.items() if name not in _OF_SOME or name in info.options)


ACCEPTED = "up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_run_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


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


def processes_here(processes: int) -> int:
    """Return how many of a run's `processes` are on this machine."""
    rank = torchrun_rank()
    return processes if rank is None else min(processes, rank.local_ranks)


BATCH_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Those among which `--batch-size auto` chooses."""


@dataclass(frozen=True)
class Choices:
    """What was chosen by timing updates when a run began; `device` is the device type that it was chosen on."""

    device: Annotated[str, msgspec.Meta(max_length=16)]
    precision: Literal["float32", "bfloat16", "float16"]
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    threads: Annotated[int, msgspec.Meta(ge=1, le=2**12)]

    def state(self) -> dict[str, Any]:
        return asdict(self)
