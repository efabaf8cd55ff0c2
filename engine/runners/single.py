"""One process that acts and learns: deterministic for a given seed, and resumes bit for bit."""

from __future__ import annotations

from pathlib import Path

from engine.config.run_config import RunConfig
from engine.runners.actor_learner import ActorLearner
from engine.runners.coordinator import Coordinator, curriculum_level_at
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostLink
from engine.runners.shared_state import SharedState

_SEARCH_S = 120.0
"""Heartbeat limit while ways to the flag are searched. To change a way takes seconds, on a busy machine many."""


class Runner:
    """Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: HostLink, screen: FrameMailbox, resume_from: Path | None
    ) -> None:
        shared_state = SharedState(1)
        shared_state.open(curriculum_level_at(config, resume_from))
        self._actor_learner = ActorLearner(
            run, config, shared_state, screen, log=link.log, beat=link.beat, resume_from=resume_from
        )
        if resume_from is not None:
            self._actor_learner.load_play(resume_from, link.log)
        self._actor_learner.search_ways(stopped=lambda: _beats_until_stopped(link), log=link.log)
        self._coordinator = Coordinator(
            run,
            config,
            link,
            self._actor_learner.learner,
            shared_state,
            threads=self._actor_learner.threads,
            resume_from=resume_from,
            play=self._actor_learner.play,
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, actor_learner = self._coordinator, self._actor_learner
        while coordinator.proceed([] if coordinator.paused else actor_learner.iterate()):
            if coordinator.paused:
                actor_learner.show()
        coordinator.finish()

    def close(self) -> None:
        self._actor_learner.close()


def _beats_until_stopped(link: HostLink) -> bool:
    """Give a heartbeat; whether a stop waits."""
    link.beat(_SEARCH_S)
    return link.stop_waits
