"""The game of `mario-tui play`: starts it in the engine, and records it to a file, also without a screen."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import msgspec

from engine.protocol.framing import decode_play
from engine.protocol.messages import Episode, Failed
from engine.protocol.outcome import Outcome
from engine.protocol.results import Filmed, Playing, PlayOrder, PlayReport
from engine.runtime.files import partial_file
from engine.runtime.text import printable
from mario_tui.data.format import counted, is_cleared, number_or_whole, reached
from mario_tui.engine_command import EngineCommand, failed

RECORDING_TIMEOUT_S = 30.0
"""Time to finish the video at the end."""
_EXIT_TIMEOUT_S = 2.0


def start_game(order: PlayOrder) -> EngineCommand[PlayReport]:
    """Start the engine's game. At its end it gets time to finish the recording, if the order requests one."""
    leave_s, partial = _EXIT_TIMEOUT_S, None
    if order.record is not None:
        leave_s, partial = RECORDING_TIMEOUT_S, partial_file(Path(order.record))
    return EngineCommand("play", order.argument(), decode=decode_play, leave_s=leave_s, partial=partial)


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
