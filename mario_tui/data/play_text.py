"""What `mario-tui play` says about a game: its values, and the results of its episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.protocol.messages import Episode
from engine.protocol.outcome import Outcome
from mario_tui.data.format import counted, number, number_or_whole
from mario_tui.data.outcome_text import is_cleared


@dataclass(frozen=True)
class Results:
    """Totals of all episodes: a game may run for days. `outcome`: of its episodes."""

    outcome: Outcome = field(default_factory=Outcome)
    episodes: int = 0
    successes: int = 0
    total_return: float = 0.0
    total: float = 0.0
    """Of what is shown of an episode: its first result, or its return, as `best`."""
    best: float = -math.inf
    last: Episode | None = None

    def added(self, episode: Episode) -> Results:
        """The results with one more episode."""
        shown = self._shown(episode)
        return replace(
            self,
            episodes=self.episodes + 1,
            successes=self.successes + episode.success,
            total_return=self.total_return + episode.episode_return,
            total=self.total + shown,
            best=max(self.best, shown),
            last=episode,
        )

    def _shown(self, episode: Episode) -> float:
        return episode.results[0] if episode.results else episode.episode_return

    @property
    def _label(self) -> str:
        return self.outcome.results[0].label if self.outcome.results else "return"

    def line(self) -> str:
        """The results and the last episode, in one line; empty without any."""
        if self.last is None:
            return ""
        last = number_or_whole(self._shown(self.last))
        if not is_cleared(self.outcome):
            return f"{self._games()}; last: {last}"
        how = "died or stuck" if self.outcome.goal is None or not self.last.success else self.outcome.goal.label
        return f"{self.successes} of {self.episodes} cleared; last: {how} at {self._label} {last}"

    def summary(self) -> str:
        """All results, in one line; empty without any."""
        if self.last is None:
            return ""
        if not is_cleared(self.outcome):
            return self._games()
        mean, best = number(self.total_return / self.episodes), f"{self._label} {number_or_whole(self.best)}"
        return f"{self.successes} of {self.episodes:,} cleared, mean return {mean}, best {best}"

    def _games(self) -> str:
        mean = self.total / self.episodes
        return f"{counted(self.episodes, 'game')}, mean {self._label} {number(mean)}, best {number_or_whole(self.best)}"


def facts(shown: Mapping[str, int | str]) -> str:
    """The values of a frame, in one line."""
    return "  ".join(f"{name} {value}".strip() for name, value in shown.items())
