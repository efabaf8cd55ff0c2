"""One process that plays and learns: the runner whose numbers depend on its seed alone, and that resumes exactly."""

from __future__ import annotations

from pathlib import Path

from engine.config import RunConfig
from engine.runners.channel import Channel, SharedScreen
from engine.runners.lead import Lead, level_at
from engine.runners.ledger import Ledger
from engine.runners.player import Player


class Runner:
    """Trains until `config.steps`, `config.episodes` or a Stop command."""

    def __init__(
        self, run: Path, config: RunConfig, channel: Channel, screen: SharedScreen, resume_from: Path | None
    ) -> None:
        ledger = Ledger(1)
        ledger.open(level_at(config, resume_from))
        self._player = Player(run, config, ledger, screen, tell=channel.log, beat=channel.beat, resume_from=resume_from)
        if resume_from is not None:
            self._player.load_play(resume_from, channel.log)
        self._lead = Lead(
            run,
            config,
            channel,
            self._player.learner,
            ledger,
            threads=self._player.threads,
            resume_from=resume_from,
            play=self._player.play,
        )

    def train(self) -> None:
        """The loop. Returns after the last checkpoint was written and announced."""
        lead, player = self._lead, self._player
        while lead.goes_on([] if lead.paused else player.iterate()):
            if lead.paused:
                player.show()
        lead.finish()

    def close(self) -> None:
        self._player.close()
