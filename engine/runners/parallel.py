"""Workers on one shared model: each plays, keeps a replay of its own, and pushes gradients (as A3C does, Mnih et al.
2016, arXiv:1602.01783, with replay).

A worker takes over the shared model with each of its updates, and looks for it every `sync_every` environment steps
besides. Worker 0 leads: one worker alone is the single runner, bit for bit.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.agents import Losses
from engine.buffers import SharedMemory
from engine.config import RunConfig
from engine.monitoring.stages import stages
from engine.runners.central import CentralDQN, ProcessLock
from engine.runners.channel import Channel, SharedScreen
from engine.runners.crew import Crew
from engine.runners.lead import Lead, env_steps_of, level_at
from engine.runners.ledger import Ledger
from engine.runners.player import Player, follow
from engine.runners.roster import Roster

_NAP_S = 0.02


@dataclass(frozen=True)
class Shared:
    """What worker 0 hands to the others when they start."""

    run: Path
    config: RunConfig
    ledger: SharedMemory
    model: SharedMemory
    lock: ProcessLock
    screen: SharedScreen
    choices: dict[str, Any]
    resume_from: Path | None
    begun_at: int
    """Environment steps of the run at its start, so that a resumed one does not repeat its random numbers."""


class Runner:
    """Worker 0. Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, channel: Channel, screen: SharedScreen, resume_from: Path | None
    ) -> None:
        ledger_memory, model, lock = SharedMemory(), SharedMemory(), ProcessLock()
        self._ledger = Ledger(config.num_processes, ledger_memory)
        self._ledger.open(level_at(config, resume_from))
        begun_at = env_steps_of(resume_from)
        self._ledger.allow(config.steps - begun_at)
        self._worker = _Worker(
            run,
            config,
            self._ledger,
            screen,
            model,
            lock,
            tell=channel.log,
            beat=channel.beat,
            resume_from=resume_from,
            seed=None if resume_from is None else [config.seed, 0, begun_at],
        )
        self._worker.agent.store_first()
        learner = self._worker.player.learner
        shared = Shared(run, config, ledger_memory, model, lock, screen, learner.choices.state(), resume_from, begun_at)
        self._crew = Crew("worker", work, (shared,), self._ledger, channel, first=1)
        self._lead = Lead(
            run,
            config,
            channel,
            learner,
            self._ledger,
            threads=self._worker.player.threads,
            resume_from=resume_from,
            members=Roster("worker", self._ledger, self._crew, learner, learner.choices.batch_size),
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        lead, worker = self._lead, self._worker
        while lead.goes_on([] if lead.paused else worker.iterate()):
            pass
        self._ledger.stop()
        self._crew.close()
        worker.agent.pull()
        lead.finish()

    def close(self) -> None:
        self._ledger.stop()
        self._crew.close(leave_s=0)  # in order they have left already
        self._worker.player.close()


class _Worker:
    """A player on the shared model."""

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        ledger: Ledger,
        screen: SharedScreen,
        model: SharedMemory,
        lock: ProcessLock,
        *,
        index: int = 0,
        **player: Any,
    ) -> None:
        self.player = Player(
            run,
            config,
            ledger,
            screen,
            index=index,
            agent=functools.partial(CentralDQN, memory=model, lock=lock),
            **player,
        )
        self.player.learner.replay.cut()  # games begin anew, also where a checkpoint had the replay
        agent = self.player.learner.agent
        assert isinstance(agent, CentralDQN)
        self.agent = agent
        self._ledger, self._index = ledger, index
        self._looked_at = 0

    def iterate(self) -> list[Losses]:
        played = int(self._ledger.counts[self._index, 0])
        if played - self._looked_at >= self.player.config.sync_every:
            self._looked_at = played
            self.agent.pull()
        losses = self.player.iterate()
        self._ledger.counts[self._index, 3] = self.agent.updates
        return losses


def work(channel: Channel, index: int, restarts: int, shared: Shared) -> None:
    """The main function of worker `index` > 0: plays and learns until it is told to stop."""
    config = shared.config
    ledger = Ledger(config.num_processes, shared.ledger)
    worker = _Worker(
        shared.run,
        config,
        ledger,
        shared.screen,
        shared.model,
        shared.lock,
        index=index,
        tell=channel.log,
        seed=[config.seed, index, restarts, shared.begun_at],
        choices=shared.choices,
        resume_from=None if restarts else shared.resume_from,  # by then the checkpoint may have been rotated away
    )
    worker.agent.pull()
    if restarts:
        follow(ledger, worker.player.learner)
        worker.player.learner.replay.beta = ledger.beta
    while not ledger.stopped:
        ledger.beat(index)
        if ledger.paused or not ledger.may_go_on:
            with stages("wait"):
                time.sleep(_NAP_S)
        else:
            worker.iterate()
    worker.player.close()
