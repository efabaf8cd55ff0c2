"""Environments with child processes of their own: they react to signals as usual, and none outlives its run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from engine.config.run_config import RunConfig
from engine.games.gym.spaces import ask, parsed
from engine.host.client import HostClient
from engine.protocol.messages import Log, Members
from engine.runs.run import Run
from tests.support.gym_envs import SERVED
from tests.support.program import (
    PATIENCE_S,
    headless,
    members_of,
    next_event,
    nobody_is_left,
    processes_of,
    read_event,
    rest_of,
    run_program,
    runner_of,
    the_run,
    wait_until,
)
from tests.support.runners import RAY, RUNNERS

pytestmark = pytest.mark.process


@pytest.mark.parametrize("method", ["program", "fork", pytest.param("spawn", marks=pytest.mark.long)])
@pytest.mark.parametrize("runner", ["single", pytest.param("apex", marks=pytest.mark.long)])
def test_an_environment_may_end_its_child_by_sigterm(method: str, runner: str, tmp_path: Path) -> None:
    options = ("--game", SERVED, "--env-args", json.dumps({"method": method}), "--runner", runner, "--steps", "400")
    done = run_program("--no-ui", *options, "--burnin", "100", cwd=tmp_path)
    assert "close: no answer" not in done.stdout + done.stderr
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("method", ["program", "fork"])
def test_a_child_that_is_not_closed_ends_when_the_environment_has_told_its_spaces(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = json.dumps({"method": method, "closes": False})
    assert parsed(ask(((SERVED.removeprefix("gym:"), arguments, "none", False), 60.0))[0]).shape == (1,)
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("method", [pytest.param("program", marks=pytest.mark.long), "session", "fork"])
def test_a_child_that_is_not_closed_ends_with_the_run(method: str, tmp_path: Path) -> None:
    run_program("--no-ui", *unclosed(method), "--steps", "400", "--burnin", "100", cwd=tmp_path)
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("then", ["os._exit(3)", "time.sleep(10_000)"])
def test_a_forked_child_ends_with_the_process_that_asks_for_the_spaces(then: str, tmp_path: Path) -> None:
    """Which crashes, or is asked by one that is killed."""
    (tmp_path / "leaving.py").write_text(f"""
import os, time
from pathlib import Path
if os.fork() == 0:
    os.setsid()
    Path("left").touch()
    time.sleep(10_000)
while not Path("left").exists():
    time.sleep(0.01)
{then}
""")
    with headless("--game", "gym:leaving:Leaving-v0", cwd=tmp_path) as program:
        if "sleep" in then:
            wait_until((tmp_path / "left").exists, "the child")
            program.kill()
        program.wait()
        assert (tmp_path / "left").exists()
        nobody_is_left(tmp_path)


@pytest.mark.parametrize("method", [pytest.param("program", marks=pytest.mark.long), "session"])
def test_an_environments_children_end_with_a_killed_process_of_a_run(method: str, tmp_path: Path) -> None:
    with headless(*unclosed(method), "--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        lanes = config.parallel_envs if isinstance(config := run.description(), RunConfig) else 0
        wait_until(lambda: len(of_runners(run, tmp_path)) == lanes > 0, "a simulator for each lane", by=process)
        before = of_runners(run, tmp_path)
        runner_of(run).kill()
        read_event(process, "warning")
        read_event(process, "progress", state="running")
        wait_until(lambda: not before & {each.pid for each in simulators(tmp_path)}, "the end of the simulators")
        wait_until(lambda: len(of_runners(run, tmp_path)) == lanes, "as many of the new process", by=process)
        psutil.Process(run.record().pid).kill()
        process.communicate(timeout=PATIENCE_S)  # it may wait for a reader
        nobody_is_left(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
@pytest.mark.parametrize("runner", ["apex", pytest.param("parallel", marks=pytest.mark.long)])
def test_an_environments_children_end_with_a_member(runner: str, how: signal.Signals, tmp_path: Path) -> None:
    """That is killed, or replaced because it hangs."""
    options = (*unclosed("session"), *RUNNERS[runner], "--steps", "100000000", "--parallel-envs", "1")
    options = (*options, "--step-timeout", "5")  # a member that stands still might be in a call of its environment
    with headless(*options, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            next_event(client, Members, lambda m: all(member.env_steps > 0 for member in m.members))
            lost, *_ = members_of(run)
            its = [each for each in simulators(tmp_path) if each.ppid() == lost.pid]
            others = of_runners(run, tmp_path) - {each.pid for each in its}
            lost.send_signal(how)
            next_event(client, Log, lambda log: log.text.endswith("; restarted"))
            wait_until(lambda: not {*its} & {*simulators(tmp_path)}, "the end of the simulators")
            next_event(client, Members, lambda m: all(member.ready for member in m.members))
            assert its and others
            wait_until(lambda: others < of_runners(run, tmp_path), "those of the new member")
        psutil.Process(run.record().pid).kill()
        process.communicate(timeout=PATIENCE_S)  # it may wait for a reader
        nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("options", [RUNNERS["ddp"], RAY])
def test_an_environments_children_end_with_a_killed_host(options: tuple[str, ...], tmp_path: Path) -> None:
    with headless(*unclosed("session"), *options, "--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        wait_until(lambda: simulators(tmp_path), "simulators", by=process)
        psutil.Process(the_run(tmp_path).record().pid).kill()
        process.communicate(timeout=PATIENCE_S)
        nobody_is_left(tmp_path)


def unclosed(method: str) -> tuple[str, ...]:
    """A game whose environments leave their children."""
    return "--game", SERVED, "--env-args", json.dumps({"method": method, "closes": False})


def of_runners(run: Run, folder: Path) -> set[int]:
    """The simulators of a run's processes that play, without those of the process that has told the spaces."""
    runners = {each.pid for each in (runner_of(run), *members_of(run))}
    found = set()
    for each in simulators(folder):
        with contextlib.suppress(psutil.Error):
            if each.ppid() in runners:
                found.add(each.pid)
    return found


def simulators(folder: Path) -> list[psutil.Process]:
    """The programs that environments have started."""
    found = []
    for each in processes_of(folder):
        with contextlib.suppress(psutil.Error):
            if "signal.pause()" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.parametrize(
    "method", [*(pytest.param(each, marks=pytest.mark.long) for each in ("program", "fork")), "session"]
)
def test_a_child_that_is_not_closed_ends_with_an_evaluation_and_a_film(method: str, tmp_path: Path) -> None:
    run_program("--no-ui", *unclosed(method), "--steps", "200", "--burnin", "100", cwd=tmp_path)
    run_program("eval", "latest", "--episodes", "2", cwd=tmp_path)
    nobody_is_left(tmp_path)
    run_program("play", "latest", "--record", "film.gif", cwd=tmp_path)
    nobody_is_left(tmp_path)


def test_environments_are_closed_after_evaluations_and_films(tmp_path: Path) -> None:
    run_program("--no-ui", "--game", SERVED, "--steps", "200", "--burnin", "100", "--eval-every", "200", cwd=tmp_path)
    nobody_is_left(tmp_path)
    run_program("eval", "latest", "--episodes", "2", cwd=tmp_path)
    nobody_is_left(tmp_path)
    run_program("play", "latest", "--record", "film.gif", cwd=tmp_path)
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("runner", ["single", "parallel", pytest.param("ddp", marks=pytest.mark.long)])
def test_a_signal_to_every_process_of_a_run_ends_it_in_order(runner: str, tmp_path: Path) -> None:
    """As `systemctl stop` sends it. The environment's children end of it, and are made anew."""
    options = ("--game", SERVED, "--runner", runner, "--steps", "100000000")
    processes = () if runner == "single" else ("--num-processes", "2")
    with headless(*options, *processes, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        host = psutil.Process(the_run(tmp_path).record().pid)
        for pid in (*(child.pid for child in host.children(recursive=True)), host.pid, process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        *_, summary = rest_of(process)
    assert process.returncode == 0 and summary["event"] == "summary"
    assert Path(summary["checkpoint"]).is_dir()
    nobody_is_left(tmp_path)
