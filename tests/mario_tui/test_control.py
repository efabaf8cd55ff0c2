"""What scripts drive runs with: `--detach`, `--tag` and `--note`, `stop`, `pause`, `resume-training`, `checkpoint` and
`wait`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs import checkpoints
from engine.runs.annotation import Annotation, read_annotation
from engine.runs.registry import create_run
from engine.runs.run import Run
from mario_tui.cli import run
from tests.support.app import folder_of_runs, start
from tests.support.program import PATIENCE_S, PROGRAM, run_program, the_run, wait_until

SNAKE = ("--game", "snake", "--board", "5x5", "--parallel-envs", "2", "--burnin", "100")


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
    begun = run_program("--detach", "--json", *SNAKE, "--tag", "one", "--tag", "Two", "--note", "a note", cwd=tmp_path)
    snake = the_run(tmp_path)
    named = {"name": snake.name, "path": str(snake.path)}
    assert json.loads(begun.stdout) == {**named, "state": "running"}
    assert read_annotation(snake) == Annotation(("one", "two"), "a note")
    assert told(capsys, "pause", "latest") == [
        {**named, "state": "paused", "reason": None, "checkpoint": None, "status": 0}
    ]
    env_steps = recorded(snake, "paused")

    obstacle = snake.path / f".{checkpoints.folder_name(env_steps)}.1.partial"
    obstacle.touch()
    (failed,) = told(capsys, "checkpoint", snake.name, status=1)
    assert f": no checkpoint was written at {env_steps:,} steps" in failed["reason"]
    (saved,) = told(capsys, "checkpoint", snake.name)
    assert (saved["state"], Path(saved["checkpoint"])) == ("paused", checkpoints.committed(snake)[-1])
    assert checkpoints.read_manifest(Path(saved["checkpoint"])).env_steps == env_steps

    folder_of_runs(tmp_path / "checkpoints", ended="finished")
    assert run(["resume-training", "nope", "ended", str(snake.path)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{snake.name}: running\n"  # the others have kept it from nothing
    missing, over = err.splitlines()
    assert missing.startswith("mario-tui: error: nope: no such run; accepted: a run's name or path, or latest")
    assert over == "mario-tui: error: ended: is not running (state: stopped)"
    wait_until(lambda: snake.record().env_steps > env_steps, "training after the pause")
    assert run(["stop", "ended", snake.name]) == 0
    assert not snake.is_alive()
    newest = checkpoints.committed(snake)[-1]
    assert newest > Path(saved["checkpoint"])
    assert capsys.readouterr().out.splitlines() == [
        "ended: stopped",
        f"{snake.name}: stopped (asked to stop); checkpoint {newest}",
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


def test_a_host_that_is_stopped_before_anybody_connects_says_so(tmp_path: Path) -> None:
    config = make_config({"game": "snake", "board": "5x5", "run_dir": str(tmp_path)})
    host = HostProcess(create_run(config))
    wait_until(lambda: host.run.record().socket, "its host")
    host.process.terminate()
    host.process.wait(PATIENCE_S)
    with pytest.raises(UserError) as refused:
        host.connect()
    assert str(refused.value) == f"{host.run.name}: stopped before training began"


def test_a_run_that_is_stopped_during_its_start_counts_as_stopped(tmp_path: Path) -> None:
    command = [*PROGRAM, "--detach", *SNAKE]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        wait_until(lambda: list(tmp_path.glob("checkpoints/*/run.json")), "the run")
        pid = wait_until(lambda: the_run(tmp_path).record().socket and the_run(tmp_path).record().pid, "its host")
        os.kill(pid, signal.SIGTERM)
        out, err = starting.communicate(timeout=PATIENCE_S)
    snake = the_run(tmp_path)
    assert (starting.returncode, out, err) == (1, "", f"mario-tui: {snake.name}: stopped before training began\n")
    assert snake.record().told_state == "stopped" and snake.record().reason == "stopped before training began"
    waited = run_program("wait", snake.name, cwd=tmp_path, check=1)
    assert waited.stderr == f"mario-tui: {snake.name}: stopped before training began\n"


@pytest.mark.long
def test_a_resumed_run_keeps_its_tags(tmp_path: Path) -> None:
    run_program("--detach", *SNAKE, "--steps", "200", "--tag", "one", "--note", "before", cwd=tmp_path)
    run_program("wait", "latest", cwd=tmp_path)
    run_program("--no-ui", "--resume", "latest", "--steps", "300", "--tag", "two", "--note", "after", cwd=tmp_path)
    assert read_annotation(the_run(tmp_path)) == Annotation(("one", "two"), "after")
