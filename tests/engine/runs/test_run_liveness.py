"""Whether a run is alive: on another machine, on a filesystem without locks, and while its host does not respond."""

from __future__ import annotations

import errno
import fcntl
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.host.client import HostProcess, attach
from engine.runs.registry import create_run
from engine.runs.run import Run
from tests.support.app import start
from tests.support.program import headless, read_event, run_program, the_run, wait_until

SNAKE = ("--game", "snake", "--board", "5x5", "--eval-every", "0", "--steps", "100000000")


def elsewhere(folder: Path, age_s: float = 0.0) -> Run:
    """A run whose record another machine wrote `age_s` seconds ago."""
    run = create_run(RunConfig(run_dir=str(folder / "checkpoints")))
    record = run.record()
    record.state, record.host, record.pid, record.socket = "running", "node-2", 4711, "/run/user/1000/mario-tui/x.sock"
    record.encode()  # dates it
    record.updated_at -= age_s
    run.record_path.write_bytes(msgspec.json.encode(record))
    return run


@pytest.mark.process
def test_a_run_on_another_machine_is_neither_lost_nor_on_this_one(tmp_path: Path) -> None:
    run = elsewhere(tmp_path)
    record = run.record()
    assert (record.state, record.elsewhere) == ("running", "node-2")
    for each in (attach, HostProcess):
        with pytest.raises(UserError, match="is running on node-2; attach to it there"):
            each(run)
    assert run_program("runs", cwd=tmp_path).stdout.splitlines()[-1].endswith("on node-2")


def test_a_run_of_another_machine_that_writes_no_more_is_lost(tmp_path: Path) -> None:
    run = elsewhere(tmp_path, age_s=60.0)
    record = run.record()
    assert (record.state, record.elsewhere) == ("lost", "")
    with run.lock():
        pass


@pytest.mark.process
def test_a_run_on_a_filesystem_without_locks_is_alive_while_its_host_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = (
        f"import fcntl, os\ndef flock(*_): raise OSError({errno.ENOLCK}, 'No locks available')\nfcntl.flock = flock\n"
    )
    (tmp_path / "sitecustomize.py").write_text(without)  # no filesystem here is without them
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with headless(*SNAKE, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        monkeypatch.setattr(fcntl, "flock", flock)
        run = the_run(tmp_path)
        wait_until(lambda: run.record().state == "running", "its record")
        with pytest.raises(UserError, match="is already running"):
            HostProcess(run)
        psutil.Process(run.record().pid).kill()
        process.wait()
        assert run.record().state == "lost"


@pytest.mark.long
@pytest.mark.process
def test_a_host_that_does_not_respond_is_called_silent(tmp_path: Path) -> None:
    with headless(*SNAKE, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        assert run.record().host
        host = psutil.Process(run.record().pid)
        host.suspend()
        wait_until(lambda: run.record().state == "silent", "its silence")
        assert run.record().reason.startswith("not responding for ")
        while "the host is not responding for" not in read_event(process, "warning")["text"]:
            pass
        host.resume()
        while "the host responds again" not in read_event(process, "warning")["text"]:
            pass
        assert wait_until(lambda: run.record().state == "running", "its answer")


@pytest.mark.process
def test_a_copy_of_a_run_has_no_host(tmp_path: Path) -> None:
    host = start(tmp_path, game="snake", board="5x5")
    wait_until(lambda: host.run.record().state == "running", "training")
    for name, flags in (("copied", "-r"), ("linked", "-rl")):
        subprocess.run(["cp", flags, host.run.path, tmp_path / name], check=True)
        assert Run(tmp_path / name).record().state == "lost"
    assert host.run.record().state == "running" and host.run.is_alive()


class _EndsMeanwhile(Run):
    """Its host writes the last record and exits between the reading of the record and the look at the lock."""

    def is_alive(self) -> bool:
        self.write_record(msgspec.structs.replace(Run(self.path)._stored_record(), state="finished"))
        return False


def test_a_run_that_ends_while_it_is_looked_at_is_not_lost(tmp_path: Path) -> None:
    run = create_run(RunConfig(run_dir=str(tmp_path)), "ends")
    run.write_record(msgspec.structs.replace(run._stored_record(), state="running"))
    assert run.record().state == "lost" and _EndsMeanwhile(run.path).record().state == "finished"
