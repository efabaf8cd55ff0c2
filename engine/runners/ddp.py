"""Data parallel: a rank per device, each with lanes, replay, online and target network of its own; one gradient.

Every rank takes the same number of updates at the same environment step: before an iteration all agree on how many are
due (the least of any rank) and on what rank 0 was told to do. A batch of the run is `batch_size` from each rank; the
learning rate is used as it is given; the epsilon ladder spans the lanes of all ranks. Rank 0 leads.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

from engine.agents import Losses
from engine.agents.averaging import AveragingDQN
from engine.agents.double_dqn import resolve_device
from engine.buffers import SharedMemory
from engine.config import RunConfig
from engine.errors import UserError
from engine.monitoring.stages import stages
from engine.runners.channel import Channel, SharedScreen
from engine.runners.crew import Crew
from engine.runners.lead import Lead, env_steps_of, level_at
from engine.runners.ledger import Ledger
from engine.runners.player import Player
from engine.runners.roster import Roster

_GO_ON, _WAIT, _STOP = 0, 1, 2
_NAP_S = 0.0002
_EXPLAIN_S = 2.0
"""Seconds in which the crew's thread tells which rank was lost, which is more than the collective operation knows."""


@dataclass(frozen=True)
class Shared:
    """What rank 0 hands to the others when they start."""

    run: Path
    config: RunConfig
    ledger: SharedMemory
    screen: SharedScreen
    choices: dict[str, Any]
    meeting: Path
    resume_from: Path | None
    begun_at: int
    """Environment steps of the run at its start, so that a resumed one does not repeat its random numbers."""


class Runner:
    """Rank 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, channel: Channel, screen: SharedScreen, resume_from: Path | None
    ) -> None:
        memory, begun_at = SharedMemory(), env_steps_of(resume_from)
        self._ledger = Ledger(config.num_processes, memory)
        self._ledger.open(level_at(config, resume_from))
        self._player = Player(
            run,
            _of_rank(config, 0),
            self._ledger,
            screen,
            tell=channel.log,
            beat=channel.beat,
            resume_from=resume_from,
            seed=None if resume_from is None else [config.seed, 0, begun_at],
            agent=AveragingDQN,
        )
        learner = self._player.learner
        self._meeting = meeting = run / ".ranks.partial"
        meeting.unlink(missing_ok=True)
        shared = Shared(run, config, memory, screen, learner.choices.state(), meeting, resume_from, begun_at)
        self._crew = Crew("rank", work, (shared,), self._ledger, channel, first=1, replace=False)
        self._rank = _Rank(self._player, self._ledger, 0, meeting)
        self._lead = Lead(
            run,
            config,
            channel,
            learner,
            self._ledger,
            threads=self._player.threads,
            resume_from=resume_from,
            members=Roster(
                "rank", self._ledger, self._crew, learner, learner.choices.batch_size * config.num_processes
            ),
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        lead, rank = self._lead, self._rank
        losses: list[Losses] = []
        try:
            while lead.goes_on(losses):
                losses = rank.iterate(_WAIT if lead.paused else _GO_ON)
            rank.iterate(_STOP)
            dist.destroy_process_group()
        except RuntimeError:
            time.sleep(_EXPLAIN_S)
            raise
        self._ledger.stop()
        self._crew.close()
        lead.finish()

    def close(self) -> None:
        self._ledger.stop()
        self._crew.close(leave_s=0)  # in order they have left already
        self._player.close()
        self._meeting.unlink(missing_ok=True)  # not earlier: NCCL's monitor reads it for as long as the group is there


class _Rank:
    """A player among others, once all have met."""

    def __init__(self, player: Player, ledger: Ledger, index: int, meeting: Path) -> None:
        self._player, self._ledger, self._index = player, ledger, index
        self._lead_says = _GO_ON
        player.learner.replay.cut()  # games begin anew, also where a checkpoint had the replay
        agent = player.learner.agent
        assert isinstance(agent, AveragingDQN)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        if agent.device.type == "cuda":
            torch.cuda.set_device(agent.device)
        dist.init_process_group(
            "nccl" if agent.device.type == "cuda" else "gloo",
            store=FileStore(str(meeting), ledger.members),
            rank=index,
            world_size=ledger.members,
        )
        self._control = dist.new_group(backend="gloo")  # on the CPU, whatever the gradients are on
        agent.broadcast()
        dist.barrier(self._control)

    @property
    def stopped(self) -> bool:
        return self._lead_says == _STOP

    def iterate(self, order: int = _GO_ON) -> list[Losses]:
        """Agree with the others, then play and learn, or not. `order` is rank 0's."""
        due = self._agree(self._player.learner.due(), order)
        if self._lead_says != _GO_ON:
            return []
        losses = self._player.iterate(lambda: self._player.learner.learn(due))
        self._ledger.counts[self._index, 3] = self._player.learner.updates
        return losses

    @stages("synchronise")
    def _agree(self, due: int, order: int) -> int:
        """The least number of updates that are due on any rank; sets what rank 0 says."""
        message = torch.tensor([-due, order])
        pending = dist.all_reduce(message, dist.ReduceOp.MAX, group=self._control, async_op=True)
        assert pending is not None
        before = time.monotonic()
        while not pending.is_completed():  # a rank that waits, for an evaluation of rank 0's perhaps, is alive
            self._ledger.beat(self._index)
            time.sleep(_NAP_S)
        pending.wait()
        self._ledger.waited[self._index] += time.monotonic() - before
        self._ledger.beat(self._index)
        self._lead_says = int(message[1])
        return -int(message[0])


def work(channel: Channel, index: int, restarts: int, shared: Shared) -> None:
    """The main function of rank `index` > 0: plays and learns until rank 0 says that it is over."""
    config = _of_rank(shared.config, index)
    ledger = Ledger(config.num_processes, shared.ledger)
    player = Player(
        shared.run,
        config,
        ledger,
        shared.screen,
        tell=channel.log,
        index=index,
        resume_from=shared.resume_from,
        seed=[config.seed, index, restarts, shared.begun_at],
        agent=AveragingDQN,
        choices=shared.choices,
    )
    rank = _Rank(player, ledger, index, shared.meeting)
    while not rank.stopped:
        rank.iterate()
    dist.destroy_process_group()
    player.close()


def _of_rank(config: RunConfig, index: int) -> RunConfig:
    """The configuration with a rank's own device. Raises `UserError` if there is none for each rank."""
    device = device_of_rank(config.device, resolve_device(config.device), index, config.num_processes)
    return dataclasses.replace(config, device=device)


def device_of_rank(asked: str, resolved: torch.device, index: int, ranks: int) -> str:
    """A rank's device: a GPU each, counted from the one that was asked for, or the CPU.

    Args:
        asked: `--device`.
        resolved: what that means on this machine.

    Raises `UserError` if there are fewer GPUs than ranks, or gradients can't be averaged on the device.
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
