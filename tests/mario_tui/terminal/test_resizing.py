"""A terminal that changes its size faster than screens are laid out, as tmux does with the panes of a zoom."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.program import Terminal, wait_until

pytestmark = pytest.mark.process

ZOOMS = 20
"""Without what is tested here, two to nine were enough."""


def settled(terminal: Terminal) -> None:
    """Wait until the program has used no processor time for a while."""
    program = psutil.Process(terminal.pid)

    def rests() -> bool:
        terminal.text()
        before = sum(program.cpu_times()[:2])
        select.select([], [], [], 0.3)
        return sum(program.cpu_times()[:2]) - before <= 0.01

    wait_until(rests, "a program that rests", patience_s=60)


@pytest.mark.long
def test_quick_zooms_across_the_least_size_leave_a_program_that_rests_and_obeys(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("No runs yet")
    for zoom in range(ZOOMS):
        terminal.resize(120, 10)
        select.select([], [], [], 0.004 * (1 + zoom % 8))  # the sizes meet in different places
        terminal.resize(120, 40)
        terminal.wait_for("No runs yet")
        settled(terminal)
    terminal.send("?")
    terminal.wait_for("Help", "esc")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 0
