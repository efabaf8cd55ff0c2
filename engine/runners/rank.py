"""One rank of a DDP run: an actor and a learner whose updates are those of all ranks.

Rank 0 is the coordinator (`engine.runners.ddp`). The others play on the same machine
(`engine.runners.local_ranks`) or on any (`engine.runners.torchrun_ranks`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from engine.agents import Losses
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.agents.double_dqn import resolve_device
from engine.config.run_config import RunConfig, make_config
from engine.config.torchrun import torchrun_rank
from engine.errors import UserError
from engine.runners.actor_learner import ActorLearner
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.rank_group import GO_ON, STOP, WAIT, RankGroup
from engine.runners.shared_state import SharedState

_TOUCH_S = 5.0
"""Seconds after which rank 0, while it evaluates or saves, lets the others know that it is alive."""


class RankJob(msgspec.Struct, frozen=True):
    """What rank 0 tells the others at their start. Plain values, since they may be on other machines."""

    run: str  # path of the run's folder
    options: dict[str, Any]  # those that are set, as in the run's `config.toml`
    choices: dict[str, Any]  # `Choices.state`
    resume_from: str | None  # path of a checkpoint
    begun_at: int  # environment steps of the run at its start, so that a resumed run does not repeat random numbers


class Meeting(Protocol):
    """How the ranks of a run form a group."""

    @property
    def apart(self) -> bool:
        """Whether each rank has a `SharedState` of its own."""

    @property
    def timeout_s(self) -> float:
        """Seconds after which a rank that does not answer is lost."""

    def meet(self) -> Store:
        """Called by each rank when it is ready. Returns the store that the group is formed with."""


class Rank:
    """An `ActorLearner` in a process group."""

    def __init__(self, actor_learner: ActorLearner, shared_state: SharedState, index: int, meeting: Meeting) -> None:
        self._actor_learner, self._shared_state, self._index = actor_learner, shared_state, index
        actor_learner.learner.replay.end_episodes()  # new games start, also if the replay was restored
        agent = actor_learner.learner.agent
        assert isinstance(agent, AllreduceDQN)
        self._group = RankGroup(
            meeting.meet(), index, agent, shared_state, apart=meeting.apart, timeout_s=meeting.timeout_s
        )
        self._iterating, self._agreed_at = False, time.monotonic()

    @property
    def stopped(self) -> bool:
        """Whether the ranks have agreed to stop."""
        return self._group.stopped

    def iterate(self, order: int = GO_ON) -> list[Losses]:
        """Agree with the other ranks, then act and learn if that was the order.

        `order` is STOP if this rank was told to stop. Otherwise it counts on rank 0 only.
        """
        self._iterating = True
        learner = self._actor_learner.learner
        due, order = self._group.agree(learner.due(), order)
        losses: list[Losses] = []
        if order == GO_ON:
            losses = self._actor_learner.iterate(lambda: learner.learn(due))
            self._shared_state.counts[self._index, 3] = learner.updates
        self._iterating, self._agreed_at = False, time.monotonic()
        return losses

    def keep_in_touch(self) -> None:
        """Called with rank 0's heartbeats: others that wait during an evaluation must not take it for lost."""
        if not self._iterating and time.monotonic() - self._agreed_at > _TOUCH_S:
            self.iterate(WAIT)

    def leave(self) -> None:
        """Leave the group, which has agreed to stop."""
        self._group.close()

    def play(self, told_to_stop: Callable[[], bool] = lambda: False) -> None:
        """As a rank other than 0: play and learn until the ranks agree to stop, then close.

        `told_to_stop`: whether this rank wants them to.
        """
        while not self.stopped:
            self.iterate(STOP if told_to_stop() else GO_ON)
        self.leave()
        self._actor_learner.close()


def join_ranks(
    job: RankJob,
    index: int,
    restarts: int,
    shared_state: SharedState,
    screen: FrameMailbox,
    meeting: Meeting,
    log: Callable[[str], None],
) -> Rank:
    """Build rank `index` > 0, and wait until all ranks have formed a group."""
    config = of_rank(make_config(job.options), index)
    actor_learner = ActorLearner(
        Path(job.run),
        config,
        shared_state,
        screen,
        log=log,
        index=index,
        resume_from=None if job.resume_from is None else Path(job.resume_from),
        seed=[config.seed, index, restarts, job.begun_at],
        agent=AllreduceDQN,
        choices=job.choices,
    )
    return Rank(actor_learner, shared_state, index, meeting)


def of_rank(config: RunConfig, index: int) -> RunConfig:
    """The configuration with the device of one rank. Raises `UserError` if there are too few devices."""
    launched = torchrun_rank()
    here = (index, config.num_processes) if launched is None else (launched.local_index, launched.local_ranks)
    return dataclasses.replace(config, device=device_of_rank(config.device, resolve_device(config.device), *here))


def device_of_rank(asked: str, resolved: torch.device, index: int, ranks: int) -> str:
    """The device of one rank: its own GPU, counted from the requested one, or the CPU.

    Args:
        asked: `--device`.
        resolved: what `--device` means on this machine.

    Raises `UserError` if there are fewer GPUs than ranks, or if gradients can't be averaged on the device.
    """
    if resolved.type == "mps":
        if asked == "auto":
            return "cpu"
        raise UserError("--device: mps: PyTorch can't average gradients there; --runner ddp accepts: auto, cpu, cuda")
    if resolved.type != "cuda":
        return asked
    first, there = resolved.index or 0, torch.cuda.device_count()
    if first + ranks > there:
        most = there - first
        raise UserError(
            f"--num-processes: {ranks} ranks need a GPU each, and this machine has {most} from cuda:{first} on; "
            f"accepted: 1 to {most}, or --device cpu"
        )
    return f"cuda:{first + index}"
