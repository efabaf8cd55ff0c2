"""The program in a real pseudo-terminal: what a person at an SSH connection lives through."""

from __future__ import annotations

import importlib
import os
import re
import signal
from pathlib import Path

import pytest
from PIL import Image

from engine.host.client import HostClient
from engine.protocol.messages import Progress
from engine.runs import checkpoints
from engine.runs.run import Run
from tests.support.program import (
    Terminal,
    headless,
    next_event,
    nobody_is_left,
    read_event,
    rest_of,
    run_program,
    runner_of,
    the_run,
    wait_until,
)

pytestmark = pytest.mark.process


def started(terminal: Terminal, folder: Path) -> Run:
    terminal.wait_for("● running", "steps/s")
    return the_run(folder)


def proceed(run: Run) -> None:
    """A fresh client sees the run take steps."""
    with HostClient(run) as client:
        first = next_event(client, Progress)
        assert next_event(client, Progress, lambda p: p.env_steps > first.env_steps).state == "running"


def test_a_hang_up_that_is_signalled_to_another_ends_the_dashboard(tmp_path: Path) -> None:
    """Such as to `make train`, which waits for its child."""
    shell = ("sh", "-c", 'trap "" HUP; "$0" "$@"; exit $?')
    terminal = Terminal(cwd=tmp_path, under=shell)
    terminal.wait_for("No runs yet")
    terminal.hang_up()
    assert terminal.wait() == 0


@pytest.mark.long
def test_q_and_r_in_one_write_start_nothing(tmp_path: Path) -> None:
    small = ("--game", "snake", "--board", "5x5", "--eval-every", "0", "--steps", "100000000")
    with headless(*small, cwd=tmp_path) as program:
        read_event(program, "progress")
        program.send_signal(signal.SIGTERM)
        assert rest_of(program)[-1]["event"] == "summary"
    run = the_run(tmp_path)
    record = run.record()
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for(run.name, "Resume")
    terminal.send("qr")
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)
    assert run.record() == record


@pytest.mark.parametrize(
    "how", ["hang up", "SIGKILL", *(pytest.param(name, marks=pytest.mark.long) for name in ("SIGHUP", "SIGTERM"))]
)
def test_training_survives_its_terminal_and_is_attached_again(how: str, tmp_path: Path) -> None:
    terminal = Terminal("--game", "mario", "--parallel-envs", "2", "--burnin", "200", cwd=tmp_path)
    run = started(terminal, tmp_path)
    terminal.wait_for("lane 0.")  # an episode in the log
    if how == "hang up":
        terminal.hang_up()
    else:
        os.kill(terminal.pid, getattr(signal, how))
    status = terminal.wait()
    assert status == (-signal.SIGKILL if how == "SIGKILL" else 0)
    if how in ("SIGHUP", "SIGTERM"):
        assert b"\x1b[?1049l" in terminal.raw  # the alternate screen was left
        assert b"\x1b[?1000l" in terminal.raw  # mouse reporting is off
        assert f"{run.name} keeps running. Reattach with: ".encode() in terminal.raw
    proceed(run)
    if how == "hang up":
        again = Terminal("attach", cwd=tmp_path, columns=120, rows=40)
        again.wait_for("● running", run.name, "lane 0.", "Mean return")
        again.send("x")
        again.wait_for("Stop mario-1-1")
        again.send("y")
        again.wait_for("■ stopped")
        again.send("q")
        assert again.wait() == 0
        assert checkpoints.newest(run) is not None
        assert run.record().state == "finished"


@pytest.mark.long
def test_a_failed_engine_gives_status_1_and_the_reason_on_a_restored_terminal(tmp_path: Path) -> None:
    terminal = Terminal("--game", "mario", "--parallel-envs", "2", "--restarts", "0", cwd=tmp_path)
    run = started(terminal, tmp_path)
    runner_of(run).kill()
    terminal.wait_for("✗ failed")
    terminal.send("q")
    assert terminal.wait() == 1
    last = bytes(terminal.raw).split(b"\x1b[?1049l")[-1].decode()
    assert "failed: the runner process crashed (killed by SIGKILL); log: " in last
    assert "run.log" in last


def test_headless_on_a_terminal_shows_a_bar_and_ctrl_c_ends_in_order(tmp_path: Path) -> None:
    terminal = Terminal("--no-ui", "--parallel-envs", "2", "--steps", "100000000", cwd=tmp_path, columns=120)
    assert "\\x1b" not in terminal.wait_for("running", "steps/s", "0%")  # control codes are obeyed, not shown
    terminal.send("\x03")
    assert terminal.wait() == 0
    assert "done (received SIGINT)" in terminal.text() and "\\x1b" not in terminal.text()
    assert checkpoints.newest(the_run(tmp_path)) is not None


def test_a_terminal_of_a_test_has_its_own_size(tmp_path: Path) -> None:
    importlib.import_module("readline")  # as debuggers do
    terminal = Terminal(cwd=tmp_path, columns=120, under=("sh", "-c", "echo size ${COLUMNS:-unset}; stty size", "sh"))
    terminal.wait_for("size unset", "24 120")
    terminal.wait()


@pytest.mark.long
def test_headless_survives_its_terminal(tmp_path: Path) -> None:
    terminal = Terminal("--no-ui", "--parallel-envs", "2", "--steps", "100000000", cwd=tmp_path, columns=120)
    terminal.wait_for("running", "steps/s")
    run = the_run(tmp_path)
    terminal.hang_up()
    proceed(run)
    proceed(run)  # it had something to write meanwhile
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 0
    assert run.record().state == "finished"


@pytest.mark.long
def test_play_shows_the_game(tmp_path: Path) -> None:
    run_program("--no-ui", "--parallel-envs", "2", "--steps", "100", cwd=tmp_path)
    terminal = Terminal("play", "latest", cwd=tmp_path)
    terminal.wait_for("▀▀▀", "lives 3")
    terminal.send("q")
    assert terminal.wait() == 0


def test_a_person_plays_and_is_filmed(tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    terminal = Terminal("play", "--human", "--hold", "2000", "--record", str(film), cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("▀▀▀", "lives 3")

    def walks() -> bool:
        terminal.send("d")  # held for two seconds
        where = re.search(r"  x (\d+)", terminal.text())
        return where is not None and int(where[1]) > 60

    wait_until(walks, "a walk to the right")
    terminal.send("q")
    assert terminal.wait() == 0
    with Image.open(film) as pictures:
        assert pictures.size == (256, 240)
        assert pictures.n_frames > 10  # type: ignore[attr-defined]


def test_a_person_plays_snake_into_the_wall(tmp_path: Path) -> None:
    terminal = Terminal("play", "--human", "--game", "snake", "--board", "4x4", cwd=tmp_path, columns=100, rows=30)
    terminal.wait_for("▀▀▀", "fruits 0", "steer")  # it waits for a key
    terminal.send("w")
    terminal.wait_for("1 game,")
    terminal.send("q")
    assert terminal.wait() == 0


def test_a_person_is_told_of_a_bad_cartridge(tmp_path: Path) -> None:
    terminal = Terminal("play", "--human", "--rom", "none.nes", cwd=tmp_path, columns=200)
    assert terminal.wait() == 2
    assert f"mario-tui: error: {tmp_path}/none.nes: cannot be read" in terminal.text()


@pytest.mark.usefixtures("executed")
def test_first_paint_comes_before_the_engine(tmp_path: Path) -> None:
    """The screen stands while networks are built; how fast exactly is for the benchmark."""
    terminal = Terminal("--game", "mario", "--parallel-envs", "2", cwd=tmp_path)
    shown = terminal.wait_for("Actors")
    assert "running" not in shown
    started(terminal, tmp_path)
    terminal.send("q")
    assert terminal.wait() == 0


@pytest.mark.parametrize("how", ["a key", "a signal"])
def test_play_gives_the_terminal_back(how: str, tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path)
    terminal.wait_for("lives 3")
    if how == "a key":
        terminal.send("\x03")
    else:
        os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 0
    assert b"\x1b[?1049l" in terminal.raw and b"\x1b[?25h" in terminal.raw


def test_eval_on_a_terminal_shows_a_bar(tmp_path: Path) -> None:
    terminal = Terminal("eval", "tetris-7x14", "--episodes", "20", cwd=tmp_path, columns=120)
    assert terminal.wait() == 0
    assert "mean score" in terminal.text()
    assert b"evaluating tetris-7x14" in terminal.raw and b"\\x1b" not in terminal.raw
