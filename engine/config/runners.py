"""What the program knows of each runner without starting it.

A row here, and a module of the same name in `engine.runners` with a `Runner`, make a runner: command line, form, memory
budget, panels and checks follow from the row. Importing this imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


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
        """What the process that coordinates the others is called."""
        return self.learner or (self.member if self.count is None else f"{self.member} 0")


_EACH_LEARNS = frozenset({"async_envs", "replay_device"})
RUNNERS = {
    info.name: info
    for info in (
        RunnerInfo(
            name="single",
            help="one process",
            member="player",
            options=_EACH_LEARNS | {"guide", "checkpoint_replay"},
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
