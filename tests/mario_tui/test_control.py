"""What scripts drive runs with: `--detach`, `--tag` and `--note`, `stop`, `pause`, `resume-training`, `checkpoint` and
`wait`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.host import client
from engine.host.client import HostProcess
from engine.runs import checkpoints
from engine.runs.registry import create_run
from engine.runs.run import Annotation, HeldRun, Run, read_annotation
from mario_tui.cli import run
from mario_tui.commands import control
from tests.support.app import folder_of_runs, hold, start
from tests.support.program import PATIENCE_S, PROGRAM, run_program, the_run, wait_until

pytestmark = pytest.mark.process

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


def test_a_host_that_does_not_answer_keeps_no_command_from_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "_ANSWER_S", PATIENCE_S)
    deaf, other = (start(tmp_path, game="snake", board="5x5") for _ in range(2))
    recorded(deaf.run, "running")
    os.kill(deaf.process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        pauses = threads.submit(run, ["pause", deaf.run.name, other.run.name])
        recorded(other.run, "paused")
        assert not pauses.done()  # it waits for the other
        os.kill(deaf.process.pid, signal.SIGCONT)
        assert pauses.result(PATIENCE_S) == 0
    assert capsys.readouterr().out == f"{deaf.run.name}: paused\n{other.run.name}: paused\n"
    os.kill(deaf.process.pid, signal.SIGSTOP)
    for command in ("resume-training", "checkpoint", "stop"):
        assert run([command, deaf.run.name, "--timeout", "0.2"]) == 124
        assert re.search(r"its host did not answer within 0\.\d s", capsys.readouterr().err)  # what is left of it
    os.kill(deaf.process.pid, signal.SIGCONT)


def test_wait_tells_of_a_host_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = start(tmp_path, game="snake", board="5x5")
    wait_until(lambda: host.run.record().pid, "the host", by=host.process)
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


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_host_that_is_killed_before_or_during_a_connection_leaves_a_lost_run(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    host = start(tmp_path, game="snake", board="5x5")
    recorded(host.run, "running")

    monkeypatch.setattr(client, "_STARTING_S", 0.0)  # it is not waited for
    module, name = (control, "attach") if when == "before" else (socket.socket, "connect")
    go_on = getattr(module, name)

    def kill_first(*arguments: Any) -> Any:
        host.process.kill()
        host.process.wait()
        return go_on(*arguments)

    monkeypatch.setattr(module, name, kill_first)
    assert run(["checkpoint", host.run.name]) == 2
    assert capsys.readouterr().err == f"mario-tui: error: {host.run.name}: is not running (state: lost)\n"


def test_wait_follows_a_run_that_is_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folder_of_runs(tmp_path, first="running", second="running")
    with ThreadPoolExecutor(1) as pool, hold(first), hold(second):
        waiting = pool.submit(run, ["wait", str(first.path), str(second.path), "--json"])
        opened = Path("/proc/self/fd")
        wait_until(lambda: str(second.path) in {os.path.realpath(each) for each in opened.iterdir()}, "the wait")
        for each in (first, second):
            each.path = each.path.rename(tmp_path / f"{each.name}-renamed")
            record = each.record()
            record.state, record.reason = "finished", "all is done"
            each.write_record(record)
        assert not waiting.done()
    assert waiting.result() == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told] == ["first-renamed", "second-renamed"]


@pytest.mark.parametrize("between", ["a look and what it finds", "what it finds and its reading"])
def test_wait_follows_a_run_that_is_renamed_while_it_looks(
    between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (ended,) = folder_of_runs(tmp_path, run="finished")
    place, name = (HeldRun, "look") if between.startswith("a look") else (Path, "lstat")
    go_on, left = getattr(place, name), iter(range(3))

    def go_on_and_rename(self: HeldRun | Path) -> Any:
        found = go_on(self)
        folder = self.path if isinstance(self, HeldRun) else self.parent
        if (folder / "run.json").exists() and (number := next(left, None)) is not None:
            folder.rename(tmp_path / f"renamed-{number}")
        return found

    monkeypatch.setattr(place, name, go_on_and_rename)
    assert run(["wait", str(ended.path), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["renamed-2"]


@pytest.mark.usefixtures("executed")
def test_a_host_that_is_stopped_before_anybody_connects_says_so(tmp_path: Path) -> None:
    config = make_config({"game": "snake", "board": "5x5", "run_dir": str(tmp_path)})
    host = HostProcess(create_run(config))
    wait_until(lambda: host.run.record().socket, "its host", by=host.process)
    host.process.terminate()
    host.process.wait(PATIENCE_S)
    with pytest.raises(UserError) as refused:
        host.connect()
    assert str(refused.value) == f"{host.run.name}: stopped before training began"


@pytest.mark.usefixtures("executed")
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
