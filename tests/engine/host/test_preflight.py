"""A start that is refused leaves nothing behind: it is refused before there is a folder, or the folder is removed."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.console.cartridge import installed_mario
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.host.preflight import check_start
from engine.runs.registry import create_run, list_runs
from mario_tui.launch import make_plan
from tests.support.in_process import checkpoint_of, train
from tests.support.program import PATIENCE_S, nobody_is_left, run_program


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"device": "cuda:99"}, "--device: cuda:99: this machine has "),
        ({"rom": "missing.nes"}, "--rom: .*missing.nes: cannot be read"),
        ({"rom": __file__}, "--rom: .*: not an iNES file"),
        ({"buffer_size": 10**12, "device": "cpu"}, "--buffer-size: 1,000,000,000,000 transitions take .* GiB"),
        (
            {"buffer_size": 10**10, "use_mmap_buffer": True},
            r"--buffer-size: 10,000,000,000 transitions (take \S+ GiB.* up to [\d,]+|need \S+ GB.* [\d,]+ fit)$",
        ),
    ],
)
def test_what_can_be_known_is_known_before_there_is_a_folder(
    options: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    plan = make_plan({"run_dir": str(tmp_path / "runs"), **options})
    with pytest.raises(UserError, match=complaint):
        plan.start()
    assert not (tmp_path / "runs").exists()
    assert list_runs() == []


def test_a_replay_in_a_file_must_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 3016 * 200_000  # a picture of 50 x 60 and 16 bytes of a transition
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    options = {"run_dir": str(tmp_path / "not" / "yet"), "use_mmap_buffer": True}
    check_start(make_config({**options, "buffer_size": 200_000}))
    with pytest.raises(UserError, match=r"400,000 transitions need 1\.2 GB, and the disk of .*at most 200,000 fit"):
        check_start(make_config({**options, "buffer_size": 400_000}))
    check_start(make_config({**options, "buffer_size": 400_000}), new=False)  # a resumed run has its file already


def test_small_sizes_are_told_in_units_that_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=30_160)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    options = {"run_dir": str(tmp_path), "use_mmap_buffer": True, "buffer_size": 12_000}
    with pytest.raises(UserError, match=r"12,000 transitions need 36\.2 MB, .* has 30\.2 kB free; at most 10 fit"):
        check_start(make_config(options))


@pytest.mark.process
def test_a_file_of_the_users_code_that_this_machine_lacks_is_named(tmp_path: Path) -> None:
    code = tmp_path / "my_env.py"
    shutil.copy(Path(__file__).parents[2] / "support" / "my_env.py", code)
    config = make_config({"game": f"gym:{code}:Corridor-v0"})
    check_start(config)
    code.unlink()
    with pytest.raises(UserError, match=f"^--env there is no file {code} on {socket.gethostname()}$"):
        check_start(config)


def test_what_works_is_not_refused(tmp_path: Path) -> None:
    check_start(make_config({"rom": str(installed_mario()), "run_dir": str(tmp_path), "device": "cpu"}))


@pytest.mark.process
def test_the_folder_of_a_run_that_the_runner_refuses_is_removed(tmp_path: Path) -> None:
    run = create_run(make_config({"device": "cuda:99", "run_dir": str(tmp_path)}))
    assert HostProcess(run).process.wait(PATIENCE_S) == 1
    assert not run.path.exists()
    assert list_runs() == []


_REFUSED_THREADS = """
import sys, threading
if any(each.endswith("{program}") for each in sys.orig_argv):
    started, start = [], threading.Thread.start
    def refuse(thread):
        started.append(thread)
        if len(started) {refused}:
            raise RuntimeError("can't start new thread")
        start(thread)
    threading.Thread.start = refuse
"""


@pytest.mark.parametrize(
    ("refused", "starts"),
    [("> 0", False), ("== 5", True), pytest.param("> 4", False, marks=pytest.mark.long)],
)
@pytest.mark.process
def test_a_host_that_gets_no_thread_says_so_and_leaves_no_process(
    refused: str, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `ulimit -u`, which does not bind root. The fifth thread reads from the runner."""
    (tmp_path / "sitecustomize.py").write_text(_REFUSED_THREADS.format(refused=refused, program="engine.host"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_program("--no-ui", "--game", "snake", "--steps", "64", "--log-format", "plain", cwd=tmp_path, check=1)
    last = done.stderr.splitlines()[-1]
    left = [*(tmp_path / "checkpoints").glob("*")]
    if starts:
        assert "failed: the runner process could not be started (can't start new thread); log: " in last
        assert "Traceback" not in left[0].joinpath("run.log").read_text()
    else:
        assert last.endswith("its host exited at once: RuntimeError: can't start new thread")
        assert not left and not list_runs()
    nobody_is_left(tmp_path)


@pytest.mark.process
def test_a_front_end_that_gets_no_thread_says_so_and_its_host_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_REFUSED_THREADS.format(refused="> 0", program="/mario-tui"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_program("--no-ui", "--game", "snake", "--steps", "64", "--log-format", "plain", cwd=tmp_path, check=1)
    assert done.stderr == "mario-tui: error: can't start new thread; `ulimit -u` limits processes and threads\n"
    nobody_is_left(tmp_path)


@pytest.mark.process
def test_a_resumed_run_that_is_refused_stays(tmp_path: Path) -> None:
    options = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32}
    run = create_run(make_config({**options, "device": "cuda:99", "run_dir": str(tmp_path)}))
    checkpoint = checkpoint_of(train(run.path, options, 80))
    HostProcess(run, checkpoint).process.wait(PATIENCE_S)
    assert run.record().state == "failed"
    assert run.record().reason.startswith("--device: cuda:99")
    assert checkpoint.exists()
