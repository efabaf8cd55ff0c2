"""Distributed data parallel: one rank per device, each with its own lanes, replay and networks; gradients are averaged.

All ranks take the same number of updates at the same environment step: before each iteration they agree on how many are
due (the minimum over ranks) and on rank 0's order. The run's batch is `batch_size` from each rank. The learning rate is
not rescaled. The epsilon ladder spans the lanes of all ranks. Rank 0 coordinates.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from engine.agents import Losses
from engine.agents.allreduce_dqn import AllreduceDQN, RankLostError
from engine.config.run_config import RunConfig
from engine.config.torchrun import torchrun_rank
from engine.runners.actor_learner import ActorLearner
from engine.runners.coordinator import Coordinator, curriculum_level_at, env_steps_of
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostLink
from engine.runners.local_ranks import LocalRanks
from engine.runners.rank import Meeting, Rank, RankJob, of_rank
from engine.runners.rank_group import GO_ON, STOP, WAIT
from engine.runners.shared_state import SharedState
from engine.runners.stats.processes import Cluster, ProcessStats
from engine.runners.torchrun_ranks import TorchrunRanks
from engine.runners.worker_pool import LEAVE_S

_EXPLAIN_S = 2.0
"""Seconds to wait, after a failed collective operation, for the pool's thread to report which rank was lost."""


class Ranks(Protocol):
    """The ranks other than 0, wherever they are."""

    @property
    def shared_state(self) -> SharedState:
        """Rank 0's."""

    @property
    def meeting(self) -> Meeting:
        """How rank 0 forms a group with them."""

    @property
    def cluster(self) -> Cluster | None:
        """Where they are, if they may be on other machines."""

    def start(self, job: RankJob) -> None:
        """Let them begin."""

    def restarts(self, index: int) -> int:
        """How many times rank `index` was replaced."""

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop them; kill those that still run after `leave_s` seconds."""


class Runner:
    """Rank 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: HostLink, screen: FrameMailbox, resume_from: Path | None
    ) -> None:
        begun_at = env_steps_of(resume_from)
        launched = torchrun_rank()
        self._ranks: Ranks = (
            LocalRanks(run, config, link, screen) if launched is None else TorchrunRanks(launched, link)
        )
        shared_state = self._ranks.shared_state
        shared_state.open(curriculum_level_at(config, resume_from))
        self._actor_learner = ActorLearner(
            run,
            of_rank(config, 0),
            shared_state,
            screen,
            log=link.log,
            beat=link.beat,
            resume_from=resume_from,
            seed=None if resume_from is None else [config.seed, 0, begun_at],
            agent=AllreduceDQN,
        )
        learner = self._actor_learner.learner
        resumed = None if resume_from is None else str(resume_from)
        self._ranks.start(RankJob(str(run), config.options(), learner.choices.state(), resumed, begun_at))
        self._rank = Rank(self._actor_learner, shared_state, 0, self._ranks.meeting)
        link.on_beat = self._rank.keep_in_touch
        self._coordinator = Coordinator(
            run,
            config,
            link,
            learner,
            shared_state,
            threads=self._actor_learner.threads,
            resume_from=resume_from,
            members=ProcessStats(
                "rank",
                shared_state,
                self._ranks,
                learner,
                learner.choices.batch_size * config.num_processes,
                self._ranks.cluster,
            ),
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, rank = self._coordinator, self._rank
        losses: list[Losses] = []
        try:
            while coordinator.proceed(losses):
                losses = rank.iterate(WAIT if coordinator.paused else GO_ON)
                if rank.stopped:
                    coordinator.stop("another rank was told to stop")
            rank.iterate(STOP)
            rank.leave()
        except RankLostError:
            time.sleep(_EXPLAIN_S)
            raise
        self._ranks.close()
        coordinator.finish()

    def close(self) -> None:
        self._ranks.close(leave_s=0)  # after an orderly end they have exited already
        self._actor_learner.close()
