"""`mario-tui stop`, `pause`, `resume-training`, `checkpoint` and `wait`, on runs that really train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UserError
from engine.runs import checkpoints
from engine.runs.run import Run
from mario_tui.cli import run
from tests.support.app import folder_of_runs, start
from tests.support.program import PATIENCE_S, PROGRAM, wait_until


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    """What a command prints with `--json`."""
    assert run([*arguments, "--json"]) == status
    return list(json.loads(capsys.readouterr().out))


def recorded(a_run: Run, state: str) -> int:
    """Environment steps in the record, as soon as it has that state."""
    wait_until(lambda: a_run.record().state == state, state)
    return a_run.record().env_steps


def test_each_command_returns_when_it_took_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = start(tmp_path, game="snake", board="5x5", burnin=100)
    snake = {"name": host.run.name, "path": str(host.run.path), "reason": None, "checkpoint": None, "status": 0}
    recorded(host.run, "running")
    assert told(capsys, "pause", "latest") == [{**snake, "state": "paused"}]
    env_steps = recorded(host.run, "paused")

    obstacle = host.run.path / f".{checkpoints.folder_name(env_steps)}.1.partial"
    obstacle.touch()
    (failed,) = told(capsys, "checkpoint", host.run.name, status=1)
    assert f"the checkpoint at {env_steps:,} could not be written: " in failed["reason"]
    (saved,) = told(capsys, "checkpoint", host.run.name)
    assert (saved["state"], Path(saved["checkpoint"])) == ("paused", checkpoints.committed(host.run)[-1])
    assert checkpoints.read_manifest(Path(saved["checkpoint"])).env_steps == env_steps

    folder_of_runs(tmp_path / "checkpoints", ended="finished")
    assert run(["resume-training", "nope", "ended", str(host.run.path)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{host.run.name}: running\n"  # the others have kept it from nothing
    missing, over = err.splitlines()
    assert missing.startswith("mario-tui: error: nope: no such run; accepted: a run's name or path, or latest")
    assert over == "mario-tui: error: ended: is not running (state: stopped)"
    wait_until(lambda: host.run.record().env_steps > env_steps, "training after the pause")
    assert run(["stop", "ended", host.run.name]) == 0
    assert not host.run.is_alive()
    newest = checkpoints.committed(host.run)[-1]
    assert newest > Path(saved["checkpoint"])
    assert capsys.readouterr().out.splitlines() == [
        "ended: stopped (had ended before)",
        f"{host.run.name}: stopped (asked to stop); checkpoint {newest}",
    ]


def test_wait_tells_of_a_host_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = start(tmp_path, game="snake", board="5x5")
    wait_until(lambda: host.run.record().pid, "the host")
    folder_of_runs(tmp_path / "checkpoints", ended="finished")
    results = told(capsys, "wait", host.run.name, "ended", "--timeout", "0", status=124)
    assert [each["status"] for each in results] == [124, 0]
    with pytest.raises(UserError, match="nope: no such run"):  # although the other would be waited for
        run(["wait", host.run.name, "nope"])
    command = [*PROGRAM, "wait", "ended", host.run.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith("ended: stopped")  # now it waits for the other
        os.kill(host.process.pid, signal.SIGKILL)
        _, err = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 1
    assert err == f"mario-tui: {host.run.name} failed: its host crashed; log: {host.run.log_path}\n"
