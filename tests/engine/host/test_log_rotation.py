"""The log of a run whose environment prints without end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.host import run_files
from engine.host.run_files import MOST_BYTES, RunFiles, rotate
from engine.runs.run import HeldRun
from tests.support.app import folder_of_runs
from tests.support.program import run_program, the_run

CHATTY = """
import gymnasium, os, time
from my_env import Corridor

class Chatty(Corridor):
    steps = 0

    def step(self, action):
        Chatty.steps += 1
        if Chatty.steps <= 9:  # more than is kept, but what is printed while a copy is made would be kept, too
            print("x" * 2**20)
        elif Chatty.steps == 10:
            while os.path.exists("run.log") and not os.path.exists("run.log.1"):  # not where it tells its spaces
                time.sleep(0.01)
        elif Chatty.steps >= 40:
            raise RuntimeError("out of luck")
        return super().step(action)

gymnasium.register("Chatty-v0", Chatty, max_episode_steps=50)
"""
PRINTS = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


@pytest.mark.process
def test_a_log_that_has_grown_too_large_begins_anew_for_all_that_print_to_it(tmp_path: Path) -> None:
    log, kept = tmp_path / "run.log", tmp_path / "run.log.1"
    with (
        log.open("ab") as file,
        subprocess.Popen([sys.executable, "-c", PRINTS], stdin=subprocess.PIPE, stdout=file, text=True) as program,
    ):
        assert program.stdin is not None
        for number in range(3):
            os.write(file.fileno(), b"-" * MOST_BYTES + b"\n")
            program.stdin.write(f"{number}\n")
            program.stdin.flush()
            while not log.read_bytes().endswith(f"{number}\n".encode()):
                pass
            rotate(tmp_path, file.fileno())
            assert (log.stat().st_size, kept.stat().st_size) == (0, MOST_BYTES)
            assert kept.read_bytes().endswith(f"-\n{number}\n".encode())
        program.stdin.close()
    other = tmp_path / "other"
    with other.open("ab") as file:
        log.write_text("not what this process writes to")
        rotate(tmp_path, file.fileno())
    assert log.read_text() == "not what this process writes to"


@pytest.mark.process
def test_an_environment_that_prints_without_end_fills_no_disk_and_its_failure_is_told(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / "support" / "my_env.py", tmp_path)
    (tmp_path / "chatty.py").write_text(CHATTY)
    options = ("--game", "gym:chatty:Chatty-v0", "--parallel-envs", "1", "--restarts", "0", "--steps", "1000")
    failed = run_program("--no-ui", *options, cwd=tmp_path, check=1)
    assert "out of luck" in failed.stderr
    run = the_run(tmp_path)
    assert MOST_BYTES / 2 < (run.path / "run.log.1").stat().st_size < 2 * MOST_BYTES
    log = run.log_path.read_text()
    assert "Traceback" in log and "out of luck" in log and len(log) < 2 * MOST_BYTES


def test_the_record_is_not_written_at_each_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = folder_of_runs(tmp_path, here="running")
    files = RunFiles(HeldRun(run.path))
    files.begin(steps=1000)
    files.write_record(None, None)
    assert not files.record_is_due
    monkeypatch.setattr(run_files, "_RECORD_EVERY_S", 0.0)
    assert files.record_is_due
    assert files.flush(60.0)
