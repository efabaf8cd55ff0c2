"""Starting a run from the terminal UI."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.runs.registry import create_run, list_runs
from engine.runs.run import CONFIG_FILE, Run
from mario_tui.launch import Plan, busy_warning, make_plan
from tests.support.app import folder_of_runs, hold
from tests.support.real_checkpoint import add_checkpoint


def run_with_checkpoint(folder: Path, **options: Any) -> Run:
    """A run that has a checkpoint at 1,000 steps."""
    run = create_run(make_plan({"run_dir": str(folder), **options}).config, "first")
    add_checkpoint(run, 1000)
    return run


def test_a_start_beside_other_runs_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new, alive, _ended, paused = folder_of_runs(
        tmp_path / "checkpoints", new="running", alive="running", ended="finished", paused="paused"
    )
    assert busy_warning(new) == ""  # a host that crashed leaves its record behind
    with hold(alive), hold(paused):
        assert re.fullmatch(r"\d+\.\d of \d+ cores? (is|are) busy with alive and other programs", busy_warning(new))


@pytest.mark.parametrize(
    ("field", "path", "reason"),
    [
        ("initial_policy", "long" * 100, ".*long: File name too long"),
        ("initial_policy", "a\0b", r"--initial-policy must be valid UTF-8 without NUL characters, got 'a\\x00b'"),
        ("rom", "a\0b", r"--rom must be valid UTF-8 without NUL characters, got 'a\\x00b'"),
        ("run_dir", "a\udcffb", r"--run-dir must be valid UTF-8 without NUL characters, got 'a\\udcffb'"),
    ],
    ids=["long", "NUL", "NUL in a cartridge", "UTF-8"],
)
def test_a_path_that_can_not_be_one_is_refused_in_one_line(field: str, path: str, reason: str) -> None:
    with pytest.raises(UserError, match=f"^{reason}$"):
        make_plan({field: path})


def test_a_new_run_whose_process_can_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))  # the user has as many processes as allowed

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(UserError, match=r"no process can be started \(Resource temporarily unavailable\)"):
        Plan(make_config({"run_dir": str(tmp_path / "runs")}), name="first").start()
    assert list((tmp_path / "runs").iterdir()) == [] and list_runs() == []


def test_options_given_since_the_last_checkpoint_hold_when_a_run_is_resumed(tmp_path: Path) -> None:
    run = run_with_checkpoint(tmp_path, steps=1000, learning_rate=1e-3)
    later = make_plan({"steps": 5000, "learning_rate": 1e-4}, resume=str(run.path)).config
    (run.path / CONFIG_FILE).write_text(later.to_toml())  # as the host's start does; then it is killed
    again = make_plan({}, resume=str(run.path)).config
    assert (again.steps, again.learning_rate) == (5000, 1e-4)
    (run.path / CONFIG_FILE).write_text("damaged")
    assert make_plan({"steps": 5000}, resume=str(run.path)).config.learning_rate == 1e-3


def test_what_a_checkpoint_decides_may_be_given_again(tmp_path: Path) -> None:
    run = run_with_checkpoint(tmp_path, game="gym", env="CartPole-v1")
    assert make_plan({"frame_stack": "none"}, resume=str(run.path)).config.value("frame_stack") is None
    with pytest.raises(UserError, match="--frame-stack must be none, as in the checkpoint, got '4'"):
        make_plan({"frame_stack": 4}, resume=str(run.path))


def test_a_resumed_runs_own_defaults_follow_what_is_given_now(tmp_path: Path) -> None:
    run = run_with_checkpoint(tmp_path, n_step=3)
    plan = make_plan({"sync_every": 1000, "buffer_size": 5000}, resume=str(run.path))
    config = plan.config
    assert (config.tau, config.burnin, config.n_step) == (1.0, 5000, 3)
    assert plan.notes == (
        ("info", "--burnin follows --buffer-size 5,000: 5,000 instead of 10,000"),
        ("info", "--tau follows --sync-every 1,000: 1 instead of 0.004"),
    )
    (run.path / CONFIG_FILE).write_text(config.to_toml())  # as the host's start does
    assert make_plan({}, resume=str(run.path)).config == config
    assert make_plan({"sync_every": 1}, resume=str(run.path)).config.tau == 0.004
    with pytest.raises(UserError, match=r"--burnin must be at most --buffer-size \(5,000\), got 6,000"):
        make_plan({"burnin": 6000}, resume=str(run.path))


def test_what_a_resumed_run_was_given_contradicts_what_is_given_now(tmp_path: Path) -> None:
    run = run_with_checkpoint(tmp_path, tau=0.01, burnin=20_000)
    with pytest.raises(UserError, match=r"--tau must be at least 0\.1 with --sync-every 1,000, got 0\.01"):
        make_plan({"sync_every": 1000}, resume=str(run.path))
    with pytest.raises(UserError, match=r"--burnin must be at most --buffer-size \(5,000\), got 20,000"):
        make_plan({"buffer_size": 5000}, resume=str(run.path))


def test_given_options_that_change_nothing_are_named() -> None:
    notes = make_plan({"game": "tetris", "alpha": 0.5, "beta": 0.4, "curriculum_steps": 9}).notes
    assert notes == (
        ("warning", "--alpha has no effect without --prioritized-replay"),
        ("warning", "--beta has no effect without --prioritized-replay"),
        ("warning", "--curriculum-steps has no effect without --curriculum"),
    )
    constant = {"learning_rate_schedule": "constant", "final_gamma": 0.9, "curriculum_rate": 0.9}
    assert make_plan(constant).notes == (
        ("warning", "--final-gamma has no effect without --learning-rate-schedule plateau or decay"),
        ("warning", "--curriculum-rate has no effect without --curriculum"),
    )
    assert make_plan({**constant, "final_gamma": "none", "curriculum": True}).notes == (
        ("info", "--stage follows --curriculum: 1-1,1-2,1-3,1-4 instead of 1-1"),
    )
    assert make_plan({"final_gamma": 0.9, "eval_every": 0}).notes == (
        ("info", "--final-episodes follows --eval-every 0: 0 instead of 100"),
        ("warning", "--final-gamma has no effect without --eval-every above 0"),
    )
    assert make_plan({}, preset_name="apex-paper").notes == ()
