"""Starting a run from the terminal UI."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.runs import checkpoints
from engine.runs.registry import create_run, list_runs
from engine.runs.run import CONFIG_FILE
from mario_tui.launch import Plan, busy_warning, make_plan
from tests.support.app import folder_of_runs, hold


def test_a_start_beside_other_runs_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new, alive, _ended, paused = folder_of_runs(
        tmp_path / "checkpoints", new="running", alive="running", ended="finished", paused="paused"
    )
    assert busy_warning(new) == ""  # a host that crashed leaves its record behind
    with hold(alive), hold(paused):
        assert busy_warning(new).startswith("alive is training on this machine as well; the runs share ")


def test_a_start_beside_other_runs_works_where_cores_can_not_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    new, alive = folder_of_runs(tmp_path / "checkpoints", new="running", alive="running")
    with hold(alive):
        assert busy_warning(new).startswith("alive is training on this machine as well")


@pytest.mark.parametrize(
    ("field", "path"),
    [("initial_policy", "long" * 100), ("initial_policy", "a\0b"), ("rom", "a\0b"), ("run_dir", "a\udcffb")],
    ids=["long", "NUL", "NUL", "UTF-8"],
)
def test_a_path_that_can_not_be_one_is_refused(field: str, path: str) -> None:
    with pytest.raises(UserError) as refused:
        make_plan({field: path})
    assert "\n" not in str(refused.value) and ("must be" in str(refused.value) or "too long" in str(refused.value))


def test_a_new_run_whose_process_can_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))  # the user has as many processes as allowed

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(UserError, match=r"no process can be started \(Resource temporarily unavailable\)"):
        Plan(make_config({"run_dir": str(tmp_path / "runs")}), name="first").start()
    assert list((tmp_path / "runs").iterdir()) == [] and list_runs() == []


def test_options_given_since_the_last_checkpoint_hold_when_a_run_is_resumed(tmp_path: Path) -> None:
    run = create_run(make_config({"run_dir": str(tmp_path), "steps": 1000, "learning_rate": 1e-3}), "first")
    checkpoint = run.path / checkpoints.folder_name(1000)
    checkpoint.mkdir()
    (checkpoint / CONFIG_FILE).write_bytes((run.path / CONFIG_FILE).read_bytes())
    checkpoints.seal(checkpoint, 1000, 1)
    later = make_plan({"steps": 5000, "learning_rate": 1e-4}, resume=str(run.path)).config
    (run.path / CONFIG_FILE).write_text(later.to_toml())  # as the host's start does; then it is killed
    again = make_plan({}, resume=str(run.path)).config
    assert (again.steps, again.learning_rate) == (5000, 1e-4)
    (run.path / CONFIG_FILE).write_text("damaged")
    assert make_plan({"steps": 5000}, resume=str(run.path)).config.learning_rate == 1e-3
