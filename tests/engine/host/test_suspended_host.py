"""A host that is suspended, or hangs, holds up nobody: whoever watches the run leaves at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.runs.run import Run
from tests.support.program import (
    PATIENCE_S,
    Terminal,
    headless,
    kill_hosts,
    nobody_is_left,
    read_event,
    the_run,
    wait_until,
)

pytestmark = pytest.mark.process

SNAKE = ("--game", "snake", "--board", "5x5", "--parallel-envs", "2", "--eval-every", "0", "--steps", "100000000")
WITHOUT_LIMIT = (
    sys.executable,
    "-c",
    "import sys, engine.host.client, mario_tui.app; from mario_tui.cli import main; "
    "engine.host.client._ANSWER_S = mario_tui.app._DOUBLE_PRESS_S = 1e6; sys.argv = sys.argv[1:]; sys.exit(main())",
)
"""Starts the program so that it waits for an answer for ever: what leaves all the same does not wait for it. Also, a
second Ctrl-C never comes too late."""


@pytest.fixture
def suspended(tmp_path: Path) -> Iterator[Run]:
    """A run whose host was suspended while its dashboard was open."""
    terminal = Terminal(*SNAKE, cwd=tmp_path)
    terminal.wait_for("● running")
    run = the_run(tmp_path)
    os.kill(run.record().pid, signal.SIGSTOP)
    terminal.wait_for("not responding for")
    for key in "pvgsCe":
        terminal.send(key)
    terminal.wait_for("learning rate")  # a dialog: all were heard
    terminal.send("\x1b")
    wait_until(lambda: "learning rate" not in terminal.text(), "the dialog's end")
    terminal.send("q")
    assert terminal.wait() == 0
    yield run
    kill_hosts(tmp_path)


@pytest.mark.long
def test_everybody_leaves_a_run_whose_host_is_suspended(suspended: Run, tmp_path: Path) -> None:
    for keys in ("q", "\x03\x03", "hq"):
        attached = Terminal("attach", cwd=tmp_path, under=WITHOUT_LIMIT)
        attached.wait_for("not responding for")
        for key in keys:
            attached.send(key)
            attached.text()
        assert attached.wait() == 0
    home = Terminal(cwd=tmp_path, under=WITHOUT_LIMIT)
    home.wait_for(suspended.name, "… silent", "1 not responding")
    home.send("c")
    home.wait_for("no data yet")
    home.send("h")
    home.wait_for("Resume")
    home.send("q")
    assert home.wait() == 0
    assert suspended.is_alive()


@pytest.mark.long
def test_ctrl_c_again_and_again_ends_a_headless_run_whose_host_is_suspended(tmp_path: Path) -> None:
    with headless(*SNAKE, cwd=tmp_path) as program:
        read_event(program, "progress")
        host = psutil.Process(the_run(tmp_path).record().pid)
        host.suspend()

        def ended() -> bool:
            if not host.is_running() or host.status() == psutil.STATUS_ZOMBIE:
                return True
            program.send_signal(signal.SIGINT)
            return False

        wait_until(ended, "the host's end")
        assert program.wait(PATIENCE_S) == 1
        assert program.stderr is not None
        assert "its host crashed" in program.stderr.read()
        nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_dashboard_tries_again_when_the_host_did_not_answer(suspended: Run, tmp_path: Path) -> None:
    attached = Terminal("attach", cwd=tmp_path)
    attached.wait_for("did not answer within")
    os.kill(suspended.record().pid, signal.SIGCONT)
    attached.wait_for("‖ paused")  # as its dashboard had asked
    attached.send("q")
    assert attached.wait() == 0
