"""The recording of the documentation: a real run of Snake in the terminal UI, from its start to a detach.

    python -m tests.support.demo [--cast FILE]

trains for about two minutes and writes a time-lapse to `docs/images/demo.gif`; with `--cast`, also the recording
itself, for `asciinema play`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.casts import Cast
from tests.support.program import Terminal, kill_hosts, wait_until

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.gif"
COLUMNS, ROWS = 100, 32
RUN = ("--game", "snake", "--board", "6x6", "--epsilon-steps", "20000", "--eval-every", "10000", "--name", "snake-demo")
FRAME_S, LAST_S = 0.2, 3.0


class Recorder:
    """The program in a terminal whose output goes into a cast."""

    def __init__(self, folder: Path) -> None:
        command = shlex.join(["mario-tui", *RUN])
        self.cast = Cast(COLUMNS, ROWS, command)
        self.cast.add(0, f"$ {command}\r\n".encode())
        self._begun = time.monotonic()
        self._terminal = Terminal(*RUN, cwd=folder, columns=COLUMNS, rows=ROWS)
        self._recorded = 0

    def until(self, condition: Callable[[str], object], what: str) -> None:
        """Record until a condition holds for the text on the screen."""
        wait_until(lambda: condition(self._take()), what)

    def press(self, keys: str) -> None:
        self._terminal.send(keys)

    def end(self) -> None:
        """Record what the program writes up to its end."""
        self._terminal.wait()
        self._take()

    def _take(self) -> str:
        text = self._terminal.text()
        if new := bytes(self._terminal.raw[self._recorded :]):
            self.cast.add(time.monotonic() - self._begun, new)
            self._recorded += len(new)
        return text


def steps(text: str) -> int:
    """Environment steps in the header of the dashboard."""
    found = re.search(r"step ([\d,]+)/", text)
    return int(found[1].replace(",", "")) if found else 0


def record(folder: Path) -> Cast:
    """Curves of a run that begins, its game with Q-values, one chart alone, and a detach."""
    recorder = Recorder(folder)
    try:
        recorder.until(lambda text: steps(text) > 20_000, "the first evaluations")
        recorder.press("g")
        recorder.until(lambda text: steps(text) > 30_000, "some games")
        recorder.press("g4z")
        recorder.until(lambda text: steps(text) > 40_000, "more of the curve")
        recorder.press("\x1b")
        recorder.until(lambda text: "Actors" in text and steps(text) > 42_000, "the dashboard")
        recorder.press("q")
        recorder.end()
    finally:
        kill_hosts(folder)
    return recorder.cast


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.support.demo", description="record a run in the terminal UI")
    parser.add_argument("--cast", type=Path, metavar="FILE", help="also write the recording itself to this file")
    parser.add_argument("--speed", type=float, default=10, help="speed of the GIF (default: 10 times)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home, "COLORTERM": "truecolor"}
        cast = record(Path(home))
    if options.cast is not None:
        cast.write(options.cast)
    cast.animate(PICTURE, every_s=options.speed * FRAME_S, frame_s=FRAME_S, last_s=LAST_S)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()
