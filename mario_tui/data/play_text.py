"""What `mario-tui play` says about a game: its values, and the results of its episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.protocol.messages import Episode
from mario_tui.data.format import counted, number

_STATUS = ("small", "tall", "fireball")  # of Mario; `status` is an index


@dataclass(frozen=True)
class Results:
    """Totals of all episodes: a game may run for days."""

    episodes: int = 0
    clears: int = 0
    total_return: float = 0.0
    total_score: int = 0
    best_score: int = 0
    furthest: int = 0
    last: Episode | None = None

    def added(self, episode: Episode) -> Results:
        """The results with one more episode."""
        return Results(
            self.episodes + 1,
            self.clears + episode.flag,
            self.total_return + episode.episode_return,
            self.total_score + episode.score,
            max(self.best_score, episode.score) if self.episodes else episode.score,
            max(self.furthest, episode.x_pos),
            episode,
        )

    def line(self) -> str:
        """The results and the last episode, in one line; empty without any."""
        if self.last is None:
            return ""
        if not self.last.x_pos:
            return f"{self._games()}; last: {self.last.score}"
        how = "flag" if self.last.flag else "died or stuck"
        return f"{self.clears} of {self.episodes} cleared; last: {how} at x {self.last.x_pos}"

    def summary(self) -> str:
        """All results, in one line; empty without any."""
        if self.last is None:
            return ""
        if not self.last.x_pos:
            return self._games()
        mean = number(self.total_return / self.episodes)
        return f"{self.clears} of {self.episodes:,} cleared, mean return {mean}, furthest x {self.furthest:,}"

    def _games(self) -> str:
        mean = self.total_score / self.episodes
        return f"{counted(self.episodes, 'game')}, mean score {mean:.1f}, best {self.best_score}"


def facts(info: Mapping[str, int]) -> str:
    """The values of a frame, in one line; those of Mario in words that players use."""
    if "x_pos" not in info:
        return "  ".join(f"{name} {value}" for name, value in info.items())
    lives = (info["life"] + 1) % 256  # the console counts those in reserve, and -1 is none
    return (
        f"world {info['world']}-{info['stage']}  x {info['x_pos']}  y {info['y_pos']}  time {info['time']}  "
        f"score {info['score']}  coins {info['coins']}  lives {lives}  {_STATUS[min(info['status'], 2)]}"
    )
