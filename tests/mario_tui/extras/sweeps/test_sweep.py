"""Sweeps as folders and tables: where they are found, what they hold, and what their runs have reached."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runs.checkpoints import committed
from engine.runs.lookup import find_sweep
from engine.runs.marks import is_run
from engine.runs.registry import create_run, list_runs
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan, list_sweeps
from engine.runtime.files import program_folder
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.extras.sweeps.queue import close_if_done
from mario_tui.extras.sweeps.results import how_to_go_on, results_of
from tests.support.program import (
    Terminal,
    processes_of,
    refusal,
    run_program,
)
from tests.support.real_checkpoint import add_checkpoint
from tests.support.sweeps import SNAKE, status


def test_the_newest_sweep_is_the_one_that_was_started_last(tmp_path: Path) -> None:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=())
    older, newer = create_sweep(tmp_path, "older", plan), create_sweep(tmp_path, "newer", plan)
    older.write_plan(msgspec.structs.replace(plan, members=(Member({}, 0),)))
    assert [sweep.path for sweep in list_sweeps()] == [newer.path, older.path]


def test_a_renamed_sweep_has_its_runs(tmp_path: Path) -> None:
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0),))
    sweep = create_sweep(tmp_path, "before", plan)
    create_run(make_config({"game": "snake", "run_dir": str(sweep.path)}), sweep.run(0).name)
    assert how_to_go_on(sweep) == "to go on: mario-tui sweep resume before"
    sweep.path.rename(tmp_path / "after")
    moved = Sweep(tmp_path / "after")
    assert moved.run(0).path == tmp_path / "after" / "before-001" and is_run(moved.run(0).path)
    assert how_to_go_on(moved) == "was not made here by you, so it can only be looked at"
    moved.write_plan(msgspec.structs.replace(plan, name="../../elsewhere"))
    assert Sweep(moved.path).run(0).path == moved.path / "after-001"


def test_a_copied_sweep_is_listed_with_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0),))
    sweep = create_sweep(tmp_path / "from" / "checkpoints", "rates", plan)
    create_run(make_config({"game": "snake", "run_dir": str(sweep.path)}), sweep.run(0).name)
    shutil.copytree(sweep.path, tmp_path / "to" / "checkpoints" / "rates")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
    monkeypatch.chdir(tmp_path / "to")
    copied = tmp_path / "to" / "checkpoints" / "rates"
    (copied.parent / os.fsdecode(b"\xff")).mkdir()
    (copied.parent / os.fsdecode(b"\xff") / "sweep.json").touch()  # as somebody may leave there
    assert [each.path for each in list_sweeps()] == [copied]
    own = create_sweep(tmp_path / "elsewhere", "own", plan)
    os.utime(copied / "sweep.json", (2**32, 2**32))
    assert find_sweep("latest").path == own.path
    assert [run.path for run in list_runs()] == [copied / "rates-001"]
    with pytest.raises(UserError, match="was not made here by you"):
        find_sweep("rates").own_plan()


@pytest.mark.process
def test_a_sweep_is_found_in_the_folder_that_is_named(tmp_path: Path) -> None:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=())
    here, there = (create_sweep(tmp_path / folder, "rates", plan) for folder in ("here", "there"))
    create_sweep(tmp_path / "there", "newer", plan)
    assert find_sweep("latest", tmp_path / "here").path == find_sweep("rates", tmp_path / "here").path == here.path
    assert find_sweep("rates", tmp_path / "there").path == there.path
    for command in ("status", "watch", "stop", "resume", "add", "wait"):
        told = refusal("sweep", command, "newer", "--run-dir", str(tmp_path / "here"), cwd=tmp_path)
        assert f"no sweep 'newer' in {tmp_path / 'here'}; there are: rates" in told
    listed = json.loads(run_program("sweep", "status", "--json", "--run-dir", "there", cwd=tmp_path).stdout)
    assert {each["path"] for each in listed} == {str(tmp_path / "there" / name) for name in ("rates", "newer")}


def test_sweeps_of_the_same_second_are_numbered(tmp_path: Path) -> None:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=())
    made = [create_sweep(tmp_path, "sweep-snake-1", plan, numbered=True).name for _ in range(3)]
    assert made == ["sweep-snake-1", "sweep-snake-1-2", "sweep-snake-1-3"]
    with pytest.raises(UserError, match="exists already"):
        create_sweep(tmp_path, "sweep-snake-1", plan)


def test_a_sweep_that_can_not_be_noted_leaves_nothing(tmp_path: Path) -> None:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=())
    notes = program_folder("STATE") / "sweeps"
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.touch()
    with pytest.raises(UserError, match=f"^{re.escape(str(notes))}.*: can't be written"):
        create_sweep(tmp_path / "runs", "noted", plan)
    assert not (tmp_path / "runs" / "noted").exists()


def test_a_run_that_had_done_all_its_steps_is_finished(tmp_path: Path) -> None:
    plan = SweepPlan(
        options={"game": "snake", "steps": 1000}, jobs=1, threads=1, members=(Member({}, 0), Member({}, 1))
    )
    sweep = create_sweep(tmp_path, "killed", plan)
    for number, steps in enumerate((1000, 2000)):
        config = make_config({"game": "snake", "steps": steps, "run_dir": str(sweep.path)})
        add_checkpoint(create_run(config, sweep.run(number).name), 1000)
    done, left = (sweep.run(number) for number in range(2))
    for run in (done, left):
        (newest,) = committed(run)
        assert close_if_done(run, newest) == (run is done)
    states = [member.state for result in results_of(sweep, plan) for member in result.members]
    assert states == ["finished", "waiting"] and RunStatus.of_record(left.record()) is RunStatus.LOST
    assert done.record().env_steps == 1000


@pytest.mark.process
def test_a_narrow_terminal_gets_fewer_columns_and_whole_lines(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"learning_rate": 0.0003, "n_step": n, "gamma": 0.95} for n in (1, 3)]
    plan = SweepPlan(options={}, jobs=1, threads=1, members=tuple(Member(each, 0) for each in settings))
    create_sweep(tmp_path, "narrow", plan)
    for columns, heads, values in (
        (140, "setting done env steps best evaluation last episodes better time", "0/1 0 – – – 0:00:00"),
        (80, "setting done evaluation episodes better", "0/1 – – –"),
    ):
        terminal = Terminal("sweep", "status", "narrow", cwd=tmp_path, columns=columns, rows=24)
        assert terminal.wait() == 0
        lines = [" ".join(line.split()) for line in terminal.text().splitlines()]
        assert heads in lines
        wanted = [f"learning-rate=0.0003 n-step={n} gamma=0.95 {values}" for n in (1, 3)]
        assert [line for line in lines if "n-step" in line] == wanted


# ---------------------------------------------------------------------------------- the queue


@pytest.mark.process
def test_a_sweep_trains_its_runs_and_tells_what_they_reached(tmp_path: Path) -> None:
    begun = run_program(
        "sweep", *SNAKE, "--steps", "600", "--eval-every", "300", "--eval-episodes", "4", "--vary", "n-step=1,3",
        "--no-prioritized-replay", "--alpha", "0.5", "--final-episodes", "0",
        "--name", "small", "--tag", "nightly", "--note", "first try", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(begun.stdout)["runs"] == 2
    assert begun.stderr == "note: --alpha has no effect without --prioritized-replay\n"
    run_program("sweep", "wait", "small", cwd=tmp_path)
    found = status("small", tmp_path)
    assert found["states"] == {"finished": 2} and not found["queue"]
    for member, n_step in zip(found["runs"], (1, 3), strict=True):
        run = Run(tmp_path / "checkpoints" / "small" / member["run"])
        record = run.record()
        assert run.config().n_step == n_step and run.config().seed == member["seed"] == 0
        assert record.best is not None and member["best"] == record.best.mean_return
    listed = json.loads(run_program("runs", "--json", cwd=tmp_path).stdout)
    assert {each["name"] for each in listed} == {"small-001", "small-002"}
    assert all((each["tags"], each["note"]) == (["small", "nightly"], "first try") for each in listed)
    assert "| `n-step=3` | 1 of 1 |" in run_program("sweep", "status", "small", "--markdown", cwd=tmp_path).stdout
    assert "small  2 finished" in run_program("sweep", "status", cwd=tmp_path).stdout
    assert "need a sweep" in run_program("sweep", "status", "--csv", cwd=tmp_path, check=2).stderr
    create_run(RunConfig(run_dir=str(tmp_path / "checkpoints")), "beside")
    terminal = Terminal("sweep", "watch", cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("2 runs: 2 finished", "n-step", "Evaluated return", "Options and best evaluation")
    terminal.send("h")
    terminal.wait_for("small (sweep of 2)", "beside")
    terminal.send("q")
    assert terminal.wait() == 0


@pytest.mark.long
@pytest.mark.process
def test_a_copied_sweep_runs_nothing(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", "200", "--seeds", "1", "--name", "own", cwd=tmp_path)
    run_program("sweep", "wait", "own", cwd=tmp_path)
    (tmp_path / "checkpoints" / "own").rename(tmp_path / "foreign")
    for command in ("resume", "add"):
        more = ("--seeds", "1") if command == "add" else ()
        done = run_program("sweep", command, str(tmp_path / "foreign"), *more, cwd=tmp_path, check=2)
        assert "was not made here by you" in done.stderr
    assert not processes_of(tmp_path)
    (tmp_path / "foreign" / "sweep.json").write_text("{")
    assert "can't be read" in run_program("sweep", "status", "foreign", cwd=tmp_path, check=2).stderr
