"""The game of `mario-tui play`: starts it in the engine, records it to a file, also without a screen, and tells its
results."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import msgspec

from engine.config.features import place_of_feature
from engine.protocol.messages import Episode, Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import Filmed, Playing, PlayOrder
from engine.runtime.files import partial_file
from engine.runtime.text import printable
from mario_tui.data.format import counted, is_cleared, number, number_or_whole, reached
from mario_tui.engine_command import EngineCommand, failed

RECORDING_TIMEOUT_S = 30.0
"""Time to finish the video at the end."""
_EXIT_TIMEOUT_S = 2.0


def start_game(order: PlayOrder) -> EngineCommand:
    """Start the engine's game. At its end it gets time to finish the recording, if the order requests one."""
    leave_s, partial = _EXIT_TIMEOUT_S, None
    if order.record is not None:
        leave_s, partial = RECORDING_TIMEOUT_S, partial_file(Path(order.record))
    return EngineCommand(
        place_of_feature("games that are played", "this"),
        order.argument(),
        leave_s=leave_s,
        partial=partial,
    )


def record(order: PlayOrder) -> int:
    """Record one episode to a file, without a screen and as fast as possible. Returns the exit status.

    Ctrl-C finishes the file before its end.
    """
    filmed: Filmed | None = None
    outcome = Outcome()
    interrupted = False
    with start_game(msgspec.structs.replace(order, episodes=1, unpaced=True)) as game:

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            game.end()

        signal.signal(signal.SIGINT, interrupt)
        for report in game.messages():
            match report:
                case Failed():
                    return failed("the game", report)
                case Episode():
                    print(_episode_text(report, outcome))
                case Playing():
                    outcome = report.outcome
                case Filmed():
                    filmed = report
                    print(film_text(filmed), file=sys.stderr)
                case _:
                    pass
        if interrupted:
            raise KeyboardInterrupt
        if filmed is None:
            print(f"mario-tui: {game.crash_reason()}", file=sys.stderr)
    return 0 if filmed is not None else 1


def _episode_text(episode: Episode, outcome: Outcome) -> str:
    """`return 2530, x 3161, flag`."""
    parts = [f"return {number_or_whole(episode.episode_return)}", reached(outcome, episode.results)]
    if is_cleared(outcome) and outcome.goal is not None:
        parts.append(outcome.goal.label if episode.success else f"no {outcome.goal.label}")
    return ", ".join(filter(None, parts))


def film_text(film: Filmed) -> str:
    """Return where a video is, and how long and large."""
    if not film.pictures:
        return f"nothing was filmed, so {printable(film.path)} was not written"
    size = f"{film.size_bytes / 2**20:.1f} MiB" if film.size_bytes >= 2**20 else f"{film.size_bytes / 2**10:.0f} KiB"
    return printable(f"wrote {film.path}: {film.seconds:.1f} s, {counted(film.pictures, 'picture')}, {size}")


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
