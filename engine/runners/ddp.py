"""Distributed data parallel: one rank per device, each with its own lanes, replay and networks; gradients are averaged.

All ranks take the same number of updates at the same environment step: before each iteration they agree on how many are
due (the minimum over ranks) and on rank 0's order. The run's batch is `batch_size` from each rank. The learning rate is
not rescaled. The epsilon ladder spans the lanes of all ranks. Rank 0 coordinates.
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
from engine.agents.allreduce_dqn import AllreduceDQN
from engine.agents.double_dqn import resolve_device
from engine.buffers import SharedMemory
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runners.actor_learner import ActorLearner
from engine.runners.coordinator import Coordinator, curriculum_level_at, env_steps_of
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostLink
from engine.runners.shared_state import SharedState
from engine.runners.stats.processes import ProcessStats
from engine.runners.worker_pool import WorkerPool
from engine.runtime.stopwatch import stopwatch

_GO_ON, _WAIT, _STOP = 0, 1, 2
_NAP_S = 0.0002
_EXPLAIN_S = 2.0
"""Seconds to wait, after a failed collective operation, for the pool's thread to report which rank was lost."""


@dataclass(frozen=True)
class Shared:
    """What rank 0 passes to the others at their start."""

    run: Path
    config: RunConfig
    shared_state: SharedMemory
    screen: FrameMailbox
    choices: dict[str, Any]
    meeting: Path
    resume_from: Path | None
    begun_at: int
    """Environment steps of the run at its start, so that a resumed run does not repeat random numbers."""


class Runner:
    """Rank 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: HostLink, screen: FrameMailbox, resume_from: Path | None
    ) -> None:
        memory, begun_at = SharedMemory(), env_steps_of(resume_from)
        self._shared_state = SharedState(config.num_processes, memory)
        self._shared_state.open(curriculum_level_at(config, resume_from))
        self._actor_learner = ActorLearner(
            run,
            _of_rank(config, 0),
            self._shared_state,
            screen,
            log=link.log,
            beat=link.beat,
            resume_from=resume_from,
            seed=None if resume_from is None else [config.seed, 0, begun_at],
            agent=AllreduceDQN,
        )
        learner = self._actor_learner.learner
        self._meeting = meeting = run / ".ranks.partial"
        meeting.unlink(missing_ok=True)
        shared = Shared(run, config, memory, screen, learner.choices.state(), meeting, resume_from, begun_at)
        self._pool = WorkerPool("rank", work, (shared,), self._shared_state, link, first=1, replace=False)
        self._rank = _Rank(self._actor_learner, self._shared_state, 0, meeting)
        self._coordinator = Coordinator(
            run,
            config,
            link,
            learner,
            self._shared_state,
            threads=self._actor_learner.threads,
            resume_from=resume_from,
            members=ProcessStats(
                "rank", self._shared_state, self._pool, learner, learner.choices.batch_size * config.num_processes
            ),
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, rank = self._coordinator, self._rank
        losses: list[Losses] = []
        try:
            while coordinator.proceed(losses):
                losses = rank.iterate(_WAIT if coordinator.paused else _GO_ON)
            rank.iterate(_STOP)
            dist.destroy_process_group()
        except RuntimeError:
            time.sleep(_EXPLAIN_S)
            raise
        self._shared_state.stop()
        self._pool.close()
        coordinator.finish()

    def close(self) -> None:
        self._shared_state.stop()
        self._pool.close(leave_s=0)  # after an orderly end they have exited already
        self._actor_learner.close()
        self._meeting.unlink(missing_ok=True)  # only now: NCCL's monitor reads it as long as the group exists


class _Rank:
    """An `ActorLearner` in a process group."""

    def __init__(self, actor_learner: ActorLearner, shared_state: SharedState, index: int, meeting: Path) -> None:
        self._actor_learner, self._shared_state, self._index = actor_learner, shared_state, index
        self._lead_says = _GO_ON
        actor_learner.learner.replay.end_episodes()  # new games start, also if the replay was restored
        agent = actor_learner.learner.agent
        assert isinstance(agent, AllreduceDQN)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        if agent.device.type == "cuda":
            torch.cuda.set_device(agent.device)
        dist.init_process_group(
            "nccl" if agent.device.type == "cuda" else "gloo",
            store=FileStore(str(meeting), shared_state.members),
            rank=index,
            world_size=shared_state.members,
        )
        self._control = dist.new_group(backend="gloo")  # on the CPU, whatever device the gradients are on
        agent.broadcast()
        dist.barrier(self._control)

    @property
    def stopped(self) -> bool:
        return self._lead_says == _STOP

    def iterate(self, order: int = _GO_ON) -> list[Losses]:
        """Agree with the other ranks, then act and learn if that was the order. `order` counts on rank 0 only."""
        due = self._agree(self._actor_learner.learner.due(), order)
        if self._lead_says != _GO_ON:
            return []
        losses = self._actor_learner.iterate(lambda: self._actor_learner.learner.learn(due))
        self._shared_state.counts[self._index, 3] = self._actor_learner.learner.updates
        return losses

    @stopwatch("synchronise")
    def _agree(self, due: int, order: int) -> int:
        """The minimum over ranks of updates due. Also takes over rank 0's order."""
        message = torch.tensor([-due, order])
        pending = dist.all_reduce(message, dist.ReduceOp.MAX, group=self._control, async_op=True)
        assert pending is not None
        before = time.monotonic()
        while not pending.is_completed():  # a waiting rank (for rank 0's evaluation, say) is alive
            self._shared_state.beat(self._index)
            time.sleep(_NAP_S)
        pending.wait()
        self._shared_state.waited[self._index] += time.monotonic() - before
        self._shared_state.beat(self._index)
        self._lead_says = int(message[1])
        return -int(message[0])


def work(link: HostLink, index: int, restarts: int, shared: Shared) -> None:
    """The main function of rank `index` > 0: plays and learns until rank 0 orders the end."""
    config = _of_rank(shared.config, index)
    shared_state = SharedState(config.num_processes, shared.shared_state)
    actor_learner = ActorLearner(
        shared.run,
        config,
        shared_state,
        shared.screen,
        log=link.log,
        index=index,
        resume_from=shared.resume_from,
        seed=[config.seed, index, restarts, shared.begun_at],
        agent=AllreduceDQN,
        choices=shared.choices,
    )
    rank = _Rank(actor_learner, shared_state, index, shared.meeting)
    while not rank.stopped:
        rank.iterate()
    dist.destroy_process_group()
    actor_learner.close()


def _of_rank(config: RunConfig, index: int) -> RunConfig:
    """The configuration with the device of one rank. Raises `UserError` if there are too few devices."""
    device = device_of_rank(config.device, resolve_device(config.device), index, config.num_processes)
    return dataclasses.replace(config, device=device)


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
