"""Manners in a real terminal: typing ahead, leaving at once, and what can't work said in one line before the start."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runs.lookup import delete
from engine.runs.run import Run
from tests.support.program import PATIENCE_S, PROGRAM, FinishedRun, Terminal, run_program, the_run, wait_until

pytestmark = pytest.mark.process


def test_keys_typed_ahead_start_the_default_run(tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send("n\r\r")  # before the form is there
    terminal.wait_for("Actors", "mario-1-1")
    run = the_run(tmp_path)
    terminal.send("q")
    assert terminal.wait() == 0
    wait_until(lambda: run.record().pid, "the host")
    assert run.config().options()["stage"] == "1-1"


@pytest.mark.parametrize("keys", ["", "?"], ids=["home", "dialog"])
def test_ctrl_c_twice_leaves_a_restored_terminal(keys: str, tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send(keys)
    terminal.wait_for("Start a new run" if keys else "No runs yet")
    terminal.send("\x03")
    terminal.wait_for("Press Ctrl-C again to quit")
    terminal.send("\x03\x03")  # two of them within two seconds, also where the first is too old by now
    assert terminal.wait() == 0
    assert b"\x1b[?1049l" in terminal.raw


@pytest.mark.parametrize("keys", ["", "n"], ids=["home", "form"])
def test_a_terminal_that_hangs_up_leaves_nothing_running(keys: str, tmp_path: Path) -> None:
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send(keys)
    terminal.wait_for("apex-classic" if keys else "No runs yet")
    terminal.hang_up()
    assert terminal.wait() == 0


def test_what_a_terminal_that_hung_up_did_not_take_changes_no_exit_status(tmp_path: Path) -> None:
    """The last bytes of a screen may be in Python's buffer when the terminal goes."""
    ours, theirs = os.openpty()
    code = (
        "import sys; from mario_tui.cli import main; sys.stderr.buffer.write(b'.'); print('ready', flush=True); "
        "sys.stdin.read(); main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "runs"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.close(ours)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.parametrize("arguments", [(), ("--game", "mario"), ("attach", "{run}"), ("--read-only",)])
def test_a_dumb_terminal_is_one_line_and_status_2(
    arguments: tuple[str, ...], finished_run: FinishedRun, tmp_path: Path
) -> None:
    words = [argument.format(run=finished_run.run.path) for argument in arguments]
    terminal = Terminal(*words, cwd=tmp_path, columns=200, term="dumb")
    assert terminal.wait() == 2
    lines = [line for line in terminal.text().splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("mario-tui: error: the dashboard needs a terminal; use: mario-tui ")
    assert not (tmp_path / "checkpoints").exists()


def test_a_dumb_terminal_shows_the_progress_of_a_run_in_lines(tmp_path: Path) -> None:
    options = ("--game", "snake", "--board", "5x5", "--parallel-envs", "2", "--steps", "100000000")
    terminal = Terminal("--no-ui", *options, cwd=tmp_path, columns=200, term="dumb")
    terminal.wait_for("running ", "epsilon")
    terminal.send("\x03")
    terminal.wait_for("done (received SIGINT)")
    assert terminal.wait() == 0


def test_a_full_disk_is_one_line_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    def full() -> None:  # every write to a file fails, as it does there
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        [*PROGRAM, "--no-ui", "--run-dir", "runs"], cwd=tmp_path, preexec_fn=full, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "mario-tui: error: --run-dir: runs: can't be written (File too large)\n"
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o500)
    done = run_program("--no-ui", "--run-dir", "runs", cwd=tmp_path, check=2)
    assert done.stderr == "mario-tui: error: --run-dir: runs: can't be written (Permission denied)\n"


def test_a_run_dir_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    done = run_program("--no-ui", "--run-dir", "runs", cwd=tmp_path, check=2)
    assert done.stderr == "mario-tui: error: --run-dir must be a folder, got the file 'runs'\n"


def test_what_is_no_run_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    with pytest.raises(Exception, match="not a run of mario-tui"):
        delete(Run(tmp_path))
    assert (tmp_path / "precious").exists()
