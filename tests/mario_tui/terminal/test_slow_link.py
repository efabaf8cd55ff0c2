"""The dashboard in a pseudo-terminal whose reader is slow, or stops: nothing piles up, and keys still work."""

from __future__ import annotations

import os
import select
from pathlib import Path

import psutil
import pytest

from engine.host.client import HostClient
from engine.protocol.messages import Progress
from tests.support.program import Terminal, next_event, wait_until
from tests.support.source import serving

pytestmark = pytest.mark.process

_STALLED_STEPS = 20_000
"""Environment steps of the source while nobody reads: about five seconds."""


@pytest.mark.long
def test_a_reader_that_stops_gets_the_newest_and_no_backlog(tmp_path: Path) -> None:
    with serving(tmp_path, "--rate", "500", "--lanes", "64", "--history", "100000") as run:
        terminal = Terminal("attach", cwd=tmp_path)
        terminal.wait_for("● running", "steps/s", "Mean return")
        terminal.send("g")
        terminal.wait_for("▀▀▀")
        memory = psutil.Process(terminal.pid).memory_info().rss
        with HostClient(run) as client:
            first = next_event(client, Progress)
            last = next_event(client, Progress, lambda p: p.env_steps > first.env_steps + _STALLED_STEPS)
        assert psutil.Process(terminal.pid).is_running()
        assert psutil.Process(terminal.pid).memory_info().rss - memory < 20 * 2**20
        before = len(terminal.raw)
        wait_until(lambda: _steps_shown(terminal) >= last.env_steps, "the newest step on the screen")
        # What the kernel's buffer held, what was being written, and one picture: not five seconds of them.
        assert len(terminal.raw) - before < 256 * 1024
        terminal.send("q")
        assert terminal.wait() == 0


@pytest.mark.long
def test_keys_work_on_a_slow_link_and_fewer_pictures_are_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "--rate", "100", "--lanes", "16", "--history", "100000"):
        terminal = Terminal("attach", cwd=tmp_path)
        terminal.wait_for("● running", "steps/s")
        terminal.send("g")
        _read_slowly(terminal, until="slow link")
        terminal.send("x")
        _read_slowly(terminal, until="Stop mario")
        terminal.send("n")
        terminal.send("g")
        _read_slowly(terminal, until="Mean return")
        terminal.send("q")
        assert terminal.wait() == 0


def _steps_shown(terminal: Terminal) -> int:
    """The step in the header."""
    for line in terminal.text().splitlines():
        if line.strip().startswith("step "):
            return int(line.split()[1].split("/")[0].replace(",", "") or 0)
    return 0


def _read_slowly(terminal: Terminal, until: str) -> None:
    """Take 1 KiB every 50 ms, as a link of 20 KiB/s does, until the screen shows a text."""

    def read_a_little() -> bool:
        select.select([], [], [], 0.05)
        if select.select([terminal._master], [], [], 0)[0]:
            data = os.read(terminal._master, 1024)
            terminal.take(data)
        return until in "\n".join(terminal.screen.display)

    wait_until(read_a_little, f"{until!r} on a slow screen")
