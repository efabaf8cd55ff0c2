"""How headless runs end: signals, requests, readers that leave, killed processes, full disks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from PIL import Image

from engine.host.client import HostClient
from engine.protocol.commands import Stop
from engine.protocol.framing import pack
from engine.protocol.messages import Finished, Log
from engine.runs import checkpoints
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    children_of,
    headless,
    json_lines,
    kill_hosts,
    next_event,
    nobody_is_left,
    read_event,
    rest_of,
    runner_of,
    the_run,
    wait_until,
)

pytestmark = pytest.mark.process


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_checkpoints_and_ends_in_order(signum: signal.Signals, tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        process.send_signal(signum)
        summary = rest_of(process)[-1]
        assert process.returncode == 0
    assert summary["reason"] == f"received {signum.name}"
    run = the_run(tmp_path)
    newest = checkpoints.newest(run)
    assert newest is not None
    assert str(newest) == summary["checkpoint"]
    assert checkpoints.verify(newest).env_steps == summary["env_steps"]
    assert run.record().state == "finished"
    nobody_is_left(tmp_path)


def test_stop_requests_from_all_sides_keep_the_last_checkpoint(tmp_path: Path) -> None:
    """A service manager signals every process of a run, and several clients may stop it."""
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        host, runner = psutil.Process(run.record().pid), runner_of(run)
        runner.suspend()  # until all have asked
        with HostClient(run) as client, socket.socket(socket.AF_UNIX) as other:
            other.connect(run.record().socket)
            other.sendall(pack(Stop(reason="stopped from the dashboard")) + pack(Stop()) + b"\xff\xff\xff\xff")
            next_event(client, Log, lambda log: "invalid command" in log.text)  # the host has read those before it
            for _ in range(2):
                for stopped in (host, process, runner):
                    stopped.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            runner.resume()
            next_event(client, Finished)
        summary = rest_of(process)[-1]
        assert process.returncode == 0, process.stderr and process.stderr.read()
    assert summary["reason"] == "stopped from the dashboard"
    assert checkpoints.verify(Path(summary["checkpoint"])).env_steps == summary["env_steps"]


@pytest.mark.long
def test_hangup_is_ignored_and_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        first = read_event(process, "progress", state="running")
        process.send_signal(signal.SIGHUP)
        later = read_event(process, "progress", state="running")
        assert later["env_steps"] >= first["env_steps"]
        runner_of(the_run(tmp_path)).suspend()  # it can't answer the first request
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopping: received SIGINT" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    assert "stopped at once" in err
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("signalled", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_reader_that_leaves_stops_the_run_in_order(signalled: bool, tmp_path: Path) -> None:
    """`| tee` dies of the same Ctrl-C; `| head` just leaves. Neither may cost the last checkpoint."""
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        assert process.stdout is not None
        if signalled:
            process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        run = the_run(tmp_path)
        record, newest = run.record(), checkpoints.newest(run)
    assert record.state == "finished"
    assert newest is not None
    assert checkpoints.verify(newest).env_steps == record.env_steps


def test_a_killed_runner_is_a_failure_with_reason_and_log(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--restarts", "0", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        runner_of(the_run(tmp_path)).kill()
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    last = json_lines(out)[-1]
    assert (last["event"], last["reason"]) == ("failed", "the runner process crashed (killed by SIGKILL)")
    assert re.search(r"failed: the runner process crashed \(killed by SIGKILL\); log: .*run\.log", err)
    assert the_run(tmp_path).record().state == "failed"
    nobody_is_left(tmp_path)


def test_a_killed_host_leaves_no_process_and_a_lost_run(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        psutil.Process(run.record().pid).kill()
        process.wait(PATIENCE_S)
        assert process.returncode == 1
        nobody_is_left(tmp_path)
    assert run.record().state == "lost"


@pytest.mark.long
def test_a_killed_display_stops_its_run_in_order(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        process.kill()
        run = the_run(tmp_path)
        wait_until(lambda: run.record().state == "finished", "the run's end")
    assert checkpoints.newest(run) is not None


def test_ctrl_c_finishes_a_film_early(tmp_path: Path) -> None:
    command = [*PROGRAM, "play", "tetris-7x14", "--record", "film.gif"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        engine = wait_until(lambda: children_of(psutil.Process(process.pid)), "the engine", by=process)[0]
        wait_until(lambda: engine.io_counters().write_chars > 500_000, "pictures", by=process)  # of 184,320 bytes each
        engine.suspend()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        engine.resume()
        shown, said = process.communicate()
    assert (process.returncode, shown) == (130, "")
    assert re.fullmatch(r"wrote .*/film\.gif: \d+\.\d s, \d+ pictures, \d+ KiB\n", said)
    with Image.open(tmp_path / "film.gif") as pictures:
        assert pictures.size == (256, 240)


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_a_full_disk_for_the_output_hides_no_reason(log_format: str, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    command = [*PROGRAM, "--no-ui", "--log-format", log_format, "--restarts", "0", "--parallel-envs", "2"]
    with Path("/dev/full").open("w") as full, errors.open("w") as stderr:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=full, stderr=stderr)
    try:
        wait_until(lambda: "output is lost: No space left on device" in errors.read_text(), "the warning", by=process)
        wait_until(lambda: the_run(tmp_path).record().state == "running", "the run", by=process)
        runner_of(the_run(tmp_path)).kill()
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        kill_hosts(tmp_path)
    assert "failed: the runner process crashed" in errors.read_text()
