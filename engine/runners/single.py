"""One process that acts and learns: deterministic for a given seed, and resumes bit for bit."""

from __future__ import annotations

from pathlib import Path

from engine.config.run_config import RunConfig
from engine.runners.actor_learner import ActorLearner, games_fit
from engine.runners.coordination.coordinator import Coordinator
from engine.runners.coordination.tuning import curriculum_level_at
from engine.runners.links import FrameMailbox, ParentLink
from engine.runners.shared_state import SharedState
from engine.runners.start import Start, env_steps_of

_SEARCH_S = 120.0
"""Heartbeat limit while ways to the flag are searched. To change a way takes seconds, on a busy machine many."""


class Runner:
    """Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, link: ParentLink, mailbox: FrameMailbox, resume_from: Path | None
    ) -> None:
        fit = resume_from is not None and games_fit(config, resume_from)  # with the states of their generators
        begun_at = env_steps_of(resume_from)
        seed = None if resume_from is None or fit else [config.seed, 0, begun_at]  # new games must not repeat old ones
        start = Start(run, config, resume_from, seed=seed)
        shared_state = SharedState(1)
        shared_state.open(curriculum_level_at(config, resume_from))
        self._actor_learner = actor_learner = ActorLearner(start, shared_state, mailbox, link.log)
        actor_learner.before_update = link.beat
        if resume_from is not None:
            actor_learner.load_games(resume_from, fit=fit)
        actor_learner.search_ways(stopped=lambda: _beats_until_stopped(link))
        self._coordinator = Coordinator(start, link, actor_learner.learner, shared_state, actor_learner.threads)
        self._coordinator.games_state = actor_learner.games_state

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        coordinator, actor_learner = self._coordinator, self._actor_learner
        while coordinator.proceed([] if coordinator.paused else actor_learner.iterate()):
            if coordinator.paused:
                actor_learner.screen.show()
        coordinator.finish()

    def close(self) -> None:
        self._actor_learner.close()
        self._coordinator.close()


def _beats_until_stopped(link: ParentLink) -> bool:
    """Give a heartbeat; whether a stop waits."""
    link.beat(_SEARCH_S)
    return link.stop_waits
