"""The film of the README: a real run learns World 1-1 in the dashboard, then its policy plays.

    python -m tests.support.demo [--cast FILE]

trains until an evaluation clears 30 of 31 episodes, about three minutes on two free cores, and writes
`docs/images/demo.gif`; with `--cast`, also the recording itself, for `asciinema play`. The film is a time-lapse: it
shows all of the training in `TRAINING_S` seconds, and the game at the end `PLAYING` times as fast.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.runs.run import Run
from tests.support.casts import Cast
from tests.support.program import Terminal, kill_hosts, wait_until

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.gif"
COLUMNS, ROWS = 100, 32
RUN, PLAY = ("--game", "mario", "--name", "world-1-1"), ("play", "world-1-1")
TRAINING_S, PLAYING = 13.0, 5.0
"""Seconds of film that training takes, and how much faster than real time the game at the end is."""
GOOD = 30
"""Cleared episodes of an evaluation, of 31, that end the training."""
FRAME_S, LAST_S = 0.2, 1.6
_CLEAR = "\x1b[?1049l\x1b[2J\x1b[H"
"""Leaves the screen of the program before."""


class Recorder:
    """Programs in a terminal whose output goes into a cast, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shots = list[tuple[str, list[tuple[float, bytes]]]]()
        """Of each program its command line, and its output with the seconds since its start."""

    def start(self, *arguments: str) -> None:
        self.shots.append((" ".join(["$ mario-tui", *arguments]), []))
        self._begun, self._recorded = time.monotonic(), 0
        self._terminal = Terminal(*arguments, cwd=self._folder, columns=COLUMNS, rows=ROWS)

    def until(self, condition: Callable[[str], object], what: str) -> None:
        """Record until a condition holds for the text on the screen."""
        wait_until(lambda: condition(self._take()), what, patience_s=3600)

    def press(self, keys: str) -> None:
        self._terminal.send(keys)

    def leave(self) -> None:
        """End the program, without recording how it leaves the screen."""
        self._terminal.send("q")
        self._terminal.wait()

    def _take(self) -> str:
        text = self._terminal.text()
        if new := bytes(self._terminal.raw[self._recorded :]):
            self.shots[-1][1].append((time.monotonic() - self._begun, new))
            self._recorded += len(new)
        return text

    def film(self) -> Cast:
        """The cast, with the seconds of the film."""
        cast, begin = Cast(COLUMNS, ROWS, "mario-tui"), 0.0
        for number, (line, output) in enumerate(self.shots):
            cast.add(begin, f"{_CLEAR}{line}\r\n".encode())
            faster = PLAYING if number else output[-1][0] / TRAINING_S
            for at, data in output:
                cast.add(begin + at / faster, data)
            begin += output[-1][0] / faster
        return cast


def steps(text: str) -> int:
    """Environment steps in the header of the dashboard."""
    found = re.search(r"step ([\d,]+)/", text)
    return int(found[1].replace(",", "")) if found else 0


def is_good(run: Run) -> bool:
    best = run.record().best
    return best is not None and best.clears >= GOOD


def record(folder: Path) -> Cast:
    """A run from its first falls to an evaluation at the flag, a detach, and its policy up to the flag."""
    recorder = Recorder(folder)
    try:
        recorder.start(*RUN)
        recorder.until(lambda text: steps(text) > 1000, "the first steps")
        recorder.press("g")
        recorder.until(
            lambda text: is_good(Run(folder / "checkpoints" / "world-1-1")), f"an evaluation of {GOOD} of 31"
        )
        recorder.leave()
        recorder.start(*PLAY)
        recorder.until(lambda text: "1 of 1 cleared" in text, "the flag")
        recorder.leave()
    finally:
        kill_hosts(folder)
    return recorder.film()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.support.demo", description="record a run in the terminal UI")
    parser.add_argument("--cast", type=Path, metavar="FILE", help="also write the recording itself to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home, "COLORTERM": "truecolor"}
        cast = record(Path(home))
    if options.cast is not None:
        cast.write(options.cast)
    cast.animate(PICTURE, every_s=FRAME_S, frame_s=FRAME_S, last_s=LAST_S)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()
