"""Sweeps: what `--vary` means, the statistics of the table, and queues that survive what happens to them."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import shlex
import shutil
import signal
import statistics
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from engine.config.command_line import given
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runs.checkpoints import committed
from engine.runs.lookup import find_sweep
from engine.runs.registry import create_run, list_runs
from engine.runs.run import Run, is_run
from engine.runs.sweep import Member, Search, Sweep, SweepPlan, create_sweep, list_sweeps
from engine.runtime.home import program_folder
from mario_tui.commands.sweep import sweep_parser
from mario_tui.commands.sweep_options import asked_settings, read_plan
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_statistics import estimate, improvement, improves
from mario_tui.data.sweep_table import commands_of, how_to_go_on, listed, results_of, setting_text
from mario_tui.data.variations import grid, sample
from mario_tui.sweep_pruning import Evaluations
from mario_tui.sweep_queue import close_if_done, status_of
from mario_tui.sweep_search import next_setting
from tests.support.gym_envs import FAULTY
from tests.support.program import Terminal, nobody_is_left, processes_of, refusal, run_program, spawned_by, wait_until
from tests.support.real_checkpoint import add_checkpoint

SNAKE = ("--game", "snake:5x5", "--burnin", "200", "--buffer-size", "4000")


def status(name: str, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_program("sweep", "status", name, "--json", cwd=cwd).stdout)
    return found


# ---------------------------------------------------------------------------------- settings


def test_a_grid_has_all_combinations() -> None:
    found = grid(["learning-rate=3e-4,1e-3", "--n-step=1", "n_step=3", "double-q=true,false"])
    assert len(found) == 8 and found[0] == {"learning_rate": 0.0003, "n_step": 1, "double_q": True}
    assert found[-1] == {"learning_rate": 0.001, "n_step": 3, "double_q": False}
    assert setting_text(found[0]) == "learning-rate=0.0003 n-step=1 double-q=true"
    assert grid([]) == [{}]
    lakes = grid([r'env-args={"is_slippery": false, "desc": ["S\",F", "HG"]},{}'])
    assert [each["env_args"] for each in lakes] == [r'{"is_slippery": false, "desc": ["S\",F", "HG"]}', "{}"]


def test_settings_that_differ_have_another_text() -> None:
    values = [0.0003, 0.00030000001, 1e-05, 0.1 + 0.2, 3.0, 3, True, None, "a,b"]
    texts = ["0.0003", "0.00030000001", "1e-05", "0.30000000000000004", "3", "3", "true", "none", "a,b"]
    assert [setting_text({"gamma": value}) for value in values] == [f"gamma={text}" for text in texts]


def test_a_plan_may_have_the_arguments_of_an_environment_as_tables(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'vary.env-args = [{is_slippery = false, map_name = "4x4"}, {}]\nseeds = 1\n'
        'options = {game = "gym:FrozenLake-v1", env-args = {is_slippery = true}}\n'
    )
    options = sweep_parser("gym").parse_args([])
    assert read_plan(tmp_path / "plan.toml", options)["env_args"] == '{"is_slippery":true}'
    assert [each["env_args"] for each in asked_settings(options)] == [
        '{"is_slippery":false,"map_name":"4x4"}', "{}"
    ]  # fmt: skip


def test_a_task_of_several_stages_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'vary.stage = ["1-1,1-2", "1-3"]\nvary.n-step = [3.0, 1]\nvary.gamma = "0.9,0.95"\n'
    )
    options = sweep_parser().parse_args([])
    read_plan(tmp_path / "plan.toml", options)
    assert options.vary == ['stage="1-1,1-2",1-3', "n-step=3.0,1", "gamma=0.9,0.95"]
    options.vary.pop()
    found = asked_settings(options)
    assert [each["stage"] for each in found[::2]] == ["1-1,1-2", "1-3"]
    assert [setting_text(each) for each in found[:2]] == ["stage=1-1,1-2 n-step=3", "stage=1-1,1-2 n-step=1"]


@pytest.mark.parametrize("text", ["1-1,1-2", "é,b", 'a,"b', "x\\,y", '"a,b"', "[1,2]x,y", '{"a": [1, 2]}'])
def test_a_text_is_the_same_after_it_was_listed(text: str) -> None:
    assert [each["env_args"] for each in grid([f"env-args={listed([text, 'plain'])}"])] == [text, "plain"]


def test_paths_in_a_plan_are_those_of_its_folder(tmp_path: Path) -> None:
    (folder := tmp_path / "there").mkdir()
    policy = (folder / "mine.safetensors").resolve()
    policy.touch()
    (folder / "plan.toml").write_text(
        'vary.initial-policy = ["mine.safetensors", "mario-1-1"]\noptions.initial-policy = "mine.safetensors"\n'
    )
    options = sweep_parser().parse_args([])
    assert read_plan(folder / "plan.toml", options)["initial_policy"] == str(policy)
    assert options.vary == [f"initial-policy={policy},mario-1-1"]


def test_a_setting_is_the_same_whatever_the_order_of_its_options(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"gamma": 0.9, "n_step": 3}, {"n_step": 3, "gamma": 0.9}]
    plan = SweepPlan(options={}, jobs=1, threads=1, members=tuple(Member(each, n) for n, each in enumerate(settings)))
    assert len(plan.settings) == 1 and "--seeds 2" in commands_of(plan)[0]
    (result,) = results_of(create_sweep(tmp_path, "same", plan), plan)
    assert [member.seed for member in result.members] == [0, 1]


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


def test_a_plan_that_can_not_be_written_leaves_the_one_before_to_its_user(tmp_path: Path) -> None:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=(Member({}, 0),))
    sweep = create_sweep(tmp_path, "rates", plan)
    larger = msgspec.structs.replace(plan, members=tuple(Member({}, seed) for seed in range(100)))
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard_limit))  # room for the note in the home, not for the plan
    try:
        for _ in range(2):
            with pytest.raises(UserError, match="rates: can't be written"):
                sweep.write_plan(larger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))
    assert sweep.own_plan().members == plan.members
    sweep.write_plan(larger)
    assert sweep.own_plan().members == larger.members


def test_a_search_ends_only_when_there_is_no_other_setting(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    search = Search(vary=("n-step=1,3,5,7", "gamma=0.9,0.95,0.99"), count=12, seeds=(0,), seed=0, metric="best")
    members: list[Member] = []
    while setting := next_setting(search, results_of(*_sweep_of(tmp_path, members)), Evaluations()):
        members.append(Member(setting, 0))
    assert len(members) == 12


def _sweep_of(folder: Path, members: list[Member]) -> tuple[Sweep, SweepPlan]:
    plan = SweepPlan(options={}, jobs=1, threads=1, members=tuple(members))
    return create_sweep(folder, f"searched-{len(members)}", plan), plan


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
    assert (status_of(done), status_of(left)) == (RunStatus.FINISHED, RunStatus.LOST)
    assert done.record().env_steps == 1000


def test_what_a_sample_rounds_stays_within_its_range() -> None:
    found = [each["gamma"] for each in sample(["gamma=0.9991..0.9999"], 50, 0)]
    assert all(0.9991 <= gamma <= 0.9999 for gamma in found) and len(set(found)) == 50
    assert len(sample(["gamma=0..1"], 150, 0)) == 150


def test_a_sample_is_within_its_ranges_and_the_same_for_a_seed() -> None:
    varied = ["learning-rate=log:1e-5..1e-2", "n-step=1..5", "tau=0.001..0.01", "network=grid,paths"]
    found = sample(varied, 40, 7)
    assert found == sample(varied, 40, 7) != sample(varied, 40, 8)
    assert len({setting_text(each) for each in found}) == 40
    rates = [each["learning_rate"] for each in found]
    assert all(1e-5 <= rate <= 1e-2 for rate in rates) and sum(rate < 3e-4 for rate in rates) in range(10, 31)
    assert {each["n_step"] for each in found} == {1, 2, 3, 4, 5} and {each["network"] for each in found} == {
        "grid",
        "paths",
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--vary", "learnin-rate=1"), "unknown option 'learnin-rate'; did you mean --learning-rate?"),
        (("--vary", "n-step"), "must be OPTION=VALUE,VALUE"),
        (("--vary", "n-step=1,1"), "--n-step has '1' twice"),
        (("--vary", "n-step=1..3"), "--n-step has a range, which needs --sample N"),
        (("--vary", "double-q=maybe"), "--double-q must be true or false"),
        (("--vary", "seed=1,2"), "--seed can't vary; use --seeds"),
        (("--vary", "learning-rate=log:0..1", "--sample", "2"), "must be LOW..HIGH, or log:LOW..HIGH above 0"),
        (("--vary", "n-step=1,2", "--sample", "3"), "--sample: must be at most 2"),
        (("--vary", "n-step=1,1000"), "n-step"),
        (("--vary", "n-step=0.5..3", "--sample", "2"), "--n-step must be between whole numbers"),
        (("--vary", "n-step=" + ",".join(map(str, range(99))), "--vary", "seed=1"), "--seed can't vary"),
        (("--vary", "n-step=1,2", "--sample-seed", "4"), "--sample-seed needs --sample N"),
        (("--vary", "n-step=1,2", "--metric", "last"), "--metric needs --search"),
        (("--vary", "n-step=1,2", "--prune-after", "9"), "--prune-after needs --prune"),
        (("--vary", "n-step=1,2", "--prune", "median"), "--prune needs at least 5 settings, to compare them, got 2"),
        (("--vary", "n-step=1,2,3,4,5", "--prune", "median", "--eval-every", "0"), "--eval-every must be above 0"),
        (("--seed", "3", "--seeds", "2"), "--seed: a sweep has --seeds N"),
        ((), "a sweep needs --vary"),
        (("--vary", "n-step=1,2", "--seeds", "3000"), "--seeds must be"),
        (("--seeds", "2", "--threads", "x"), "--threads must be"),
        (("--vary", "n-step=1,1000", "--threads", "none"), "n-step"),
        (("start",), "unknown command 'start'"),
        (("status", "nothing"), "no sweep 'nothing'"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line_and_starts_nothing(arguments: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    is_command = bool(arguments) and not arguments[0].startswith("-")
    assert reason in refusal("sweep", *arguments, *(() if is_command else SNAKE), cwd=tmp_path)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("settings", "prune_after", "commands"),
    [
        ([({"n_step": n, "double_q": on}, range(3, 6)) for n in (1, 2, 3) for on in (True, False)], 500, 1),
        ([({"n_step": n}, range(5 if n == 2 else 2)) for n in (1, 2, 3)], None, 2),
        ([({"n_step": n}, (0, 1, 4, 5)) for n in (1, 2, 3)], None, 2),
        ([({"gamma": gamma, "n_step": n}, (0, 1)) for gamma, n in ((0.9913, 1), (0.97, 2), (1e-05, 2))], 500, 3),
        ([({name: n}, (0,)) for name, n in (("n_step", 1), ("n_step", 3), ("episodes", None))], None, 2),
        ([({}, range(7, 9))], None, 1),
    ],
    ids=["grid", "more seeds", "gaps", "sample", "other options", "seeds"],
)  # fmt: skip
def test_the_commands_of_a_sweep_make_its_runs(
    settings: list[tuple[dict[str, Any], Any]], prune_after: int | None, commands: int
) -> None:
    members = tuple(Member(setting, seed) for setting, seeds in settings for seed in seeds)
    plan = SweepPlan(
        options={"game": "snake:5x5", "double_q": False}, jobs=1, threads=2, members=members,
        ray="auto", prune_after=prune_after,
    )  # fmt: skip
    found, told = list[Member](), commands_of(plan)
    for command in told[-commands:]:
        words = shlex.split(command)
        options = sweep_parser("snake").parse_args(words[2:])
        assert given(options) | {"threads": 2, "ray": "auto", "double_q": False} == given(options)
        assert options.prune_after == (prune_after if commands == 1 else None)  # few settings can't be pruned
        seeds = range(options.first_seed or 0, (options.first_seed or 0) + options.seeds)
        found += [Member(setting, seed) for setting in asked_settings(options) for seed in seeds]
    assert sorted(found, key=str) == sorted(members, key=str)
    is_comment = prune_after is not None and commands > 1
    assert len(told) == commands + is_comment and told[0].endswith("--prune-after 500") == is_comment


# ---------------------------------------------------------------------------------- statistics


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


def test_means_and_intervals_over_seeds() -> None:
    def middle(*values: float) -> float | None:
        found = estimate((values,), "iqm")
        return None if found is None else found.value

    assert middle(3, 1, 100, 2) == pytest.approx(2.5) and middle(5.0) == 5
    assert middle(1, 2, 3, 4, 100) == pytest.approx((0.75 * 2 + 3 + 0.75 * 4) / 2.5)
    assert estimate(((),)) is None and estimate(((2.0,),)) == (2, None, None)
    values = tuple(float(each) for each in range(10))
    found = estimate((values,))
    half = 1.96 * statistics.pstdev(values) / len(values) ** 0.5
    assert found == pytest.approx((4.5, 4.5 - half, 4.5 + half), abs=0.2)
    estimate.cache_clear()
    assert estimate((values,)) == found
    assert estimate(((1.0, 3.0), (5.0, 5.0))) == (3.5, 3.0, 4.0)  # within the settings, not between them
    assert estimate(((1.0, 3.0), (5.0,)), "iqm") == (3.0, None, None)
    assert improvement((1.0, 2.0), (1.0, 0.0)) == (0.875, 0.5, 1.0) and improvement((), (1.0,)) is None


def test_a_setting_improves_on_another_by_the_plain_definition() -> None:
    """In all pairs, also of the resampled runs; with ties."""
    random = np.random.default_rng(5)
    ours, theirs = (tuple(random.integers(9, size=count).astype(float)) for count in (8, 6))

    def plain(our: Any, their: Any) -> float:
        return statistics.fmean((one > other) + 0.5 * (one == other) for one in our for other in their)

    drawn = np.random.default_rng(0)
    chosen = [drawn.integers(len(each), size=(2000, len(each))) for each in (ours, theirs)]
    found = [plain(np.array(ours)[our], np.array(theirs)[their]) for our, their in zip(*chosen, strict=True)]
    assert improves(ours, theirs) == plain(ours, theirs)
    assert improvement(ours, theirs) == (plain(ours, theirs), *np.quantile(found, (0.025, 0.975)))


# ---------------------------------------------------------------------------------- the queue


def test_a_sweep_trains_its_runs_and_tells_what_they_reached(tmp_path: Path) -> None:
    begun = run_program(
        "sweep", *SNAKE, "--steps", "600", "--eval-every", "300", "--eval-episodes", "4", "--vary", "n-step=1,3",
        "--no-prioritized-replay", "--alpha", "0.5",
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


@pytest.mark.long
def test_a_queue_survives_kills_and_its_table_is_that_of_the_runs(tmp_path: Path) -> None:
    """Two options with two values each, three seeds; the queue, a run's host and a run's learner are killed."""
    run_program(
        "sweep", *SNAKE, "--steps", "4000", "--save-every", "500", "--eval-every", "1000", "--vary", "n-step=1,3",
        "--vary", "learning-rate=3e-4,1e-3", "--seeds", "3", "--jobs", "3", "--name", "killed", cwd=tmp_path,
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "killed")

    def trains(number: int) -> bool:
        return sweep.run(number).record_path.exists() and sweep.run(number).record().env_steps > 600

    wait_until(lambda: trains(0), "the first run to train")
    os.kill(sweep.run(0).record().pid, signal.SIGKILL)  # the host: the run is lost, and goes on from a checkpoint
    wait_until(lambda: sweep.tries().get("killed-001") == 2, "the first run to begin again")
    wait_until(lambda: trains(3), "a later run to train")
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    wait_until(lambda: sweep.queue_pid() is None, "the queue's end")
    run_program("sweep", "stop", "killed", cwd=tmp_path)
    nobody_is_left(tmp_path)  # as after a reboot
    run_program("sweep", "resume", "killed", cwd=tmp_path)
    run_program("sweep", "wait", "killed", cwd=tmp_path)
    found = status("killed", tmp_path)
    assert found["states"] == {"finished": 12}
    rows = list(csv.DictReader(run_program("sweep", "status", "killed", "--csv", cwd=tmp_path).stdout.splitlines()))
    assert len(rows) == 12
    for setting in found["settings"]:
        mine = [
            row for row in rows if setting["setting"] == f"n-step={row['n_step']} learning-rate={row['learning_rate']}"
        ]
        best = [float(row["best"]) for row in mine]
        assert len(best) == 3 and setting["best"]["mean"] == pytest.approx(statistics.fmean(best))
        assert min(best) - 1e-9 <= setting["best"]["low"] <= setting["best"]["high"] <= max(best) + 1e-9
        assert setting["env_steps"] == sum(int(row["env_steps"]) for row in mine) >= 12_000


def one_at_a_time(folder: Path, steps: int) -> Sweep:
    """A sweep of two runs, whose first one trains."""
    run_program(
        "sweep", *SNAKE, "--steps", str(steps), "--save-every", "300", "--seeds", "2", "--jobs", "1", "--name", "one",
        cwd=folder,
    )  # fmt: skip
    sweep = Sweep(folder / "checkpoints" / "one")
    first = sweep.run(0)
    wait_until(lambda: first.record_path.exists() and first.record().env_steps > 600, "the first run to train")
    return sweep


@pytest.mark.long
def test_a_resumed_run_has_its_place_from_the_start(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 3000)
    first, second = sweep.run(0), sweep.run(1)
    run_program("sweep", "stop", "one", cwd=tmp_path)
    assert not second.record_path.exists()
    run_program("sweep", "resume", "one", cwd=tmp_path)
    run_program("sweep", "wait", "one", cwd=tmp_path)
    assert first.record().env_steps >= 3000 and second.record().created_at >= first.record().updated_at


@pytest.mark.long
def test_a_paused_run_whose_host_was_killed_has_its_place_again(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 10**9)
    first, second = sweep.run(0), sweep.run(1)
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    run_program("pause", "one-001", cwd=tmp_path)
    os.kill(first.record().pid, signal.SIGKILL)
    wait_until(lambda: not first.is_alive(), "the host's end")
    nobody_is_left(tmp_path)
    run_program("sweep", "resume", "one", cwd=tmp_path)
    wait_until(lambda: first.record().state == "running", "the first run to train again")
    assert not second.record_path.exists()
    run_program("sweep", "stop", "one", cwd=tmp_path)
    assert not second.record_path.exists()


@pytest.mark.long
def test_a_run_that_is_stopped_during_its_start_is_not_begun_again(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", "300", "--seeds", "1", "--name", "early", cwd=tmp_path)
    run = Sweep(tmp_path / "checkpoints" / "early").run(0)
    wait_until(lambda: run.record_path.exists() and run.record().socket, "the host")
    (runner,) = wait_until(lambda: spawned_by(psutil.Process(run.record().pid)), "the runner")
    runner.suspend()  # while it imports PyTorch
    run_program("stop", "early-001", cwd=tmp_path)
    run_program("sweep", "wait", "early", cwd=tmp_path, check=1)
    assert status("early", tmp_path)["states"] == {"stopped": 1}
    run_program("sweep", "resume", "early", cwd=tmp_path)
    run_program("sweep", "wait", "early", cwd=tmp_path)
    assert status("early", tmp_path)["states"] == {"finished": 1}


@pytest.mark.long
def test_a_run_that_fails_twice_is_named_and_blocks_no_other(tmp_path: Path) -> None:
    faulty = ("--game", FAULTY, "--env-args", '{"fault": "raise", "times": 100}', "--burnin", "50", "--restarts", "0")
    run_program(
        "sweep", *faulty, "--vary", "steps=2000,64", "--vary", "parallel-envs=1", "--jobs", "1", "--name", "ill",
        cwd=tmp_path,
    )  # fmt: skip
    run_program("sweep", "wait", "ill", cwd=tmp_path, check=1)
    assert status("ill", tmp_path)["states"] == {"failed": 1, "finished": 1}
    log = (tmp_path / "checkpoints" / "ill" / "sweep.log").read_text()
    assert log.count("ill-001 started") == 2 and log.count("ill-002 started") == 1 and "can't be started" not in log
    said = " ".join(run_program("sweep", "status", "ill", cwd=tmp_path).stdout.split())
    assert "ill-001 failed: " in said and "the joint is broken" in said and said.endswith("ill-001/run.log")


@pytest.mark.long
def test_a_search_chooses_one_setting_after_the_other(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run_program(
        "sweep", *SNAKE, "--steps", "600", "--eval-every", "300", "--eval-episodes", "4", "--vary",
        "learning-rate=log:1e-4..1e-2", "--vary", "double-q=true,false", "--sample", "4", "--search", "tpe", "--jobs",
        "1", "--name", "found", cwd=tmp_path,
    )  # fmt: skip
    run_program("sweep", "wait", "found", cwd=tmp_path)
    found = status("found", tmp_path)
    assert found["states"] == {"finished": 4} and len(found["settings"]) == 4
    rates = [float(each["learning_rate"]) for each in found["runs"]]
    assert len(set(rates)) == 4 and all(1e-4 <= rate <= 1e-2 for rate in rates)


@pytest.mark.long
def test_a_hopeless_setting_is_pruned_for_good(tmp_path: Path) -> None:
    """Its second seed never begins, and the queue is killed before it can have seen the first one's end."""
    pytest.importorskip("optuna")
    run_program(
        "sweep", "--game", "gym:CartPole-v1", "--steps", "4000", "--eval-every", "500", "--eval-episodes", "4",
        "--parallel-envs", "4", "--replay-ratio", "32", "--batch-size", "32", "--burnin", "200", "--tau", "0.02",
        "--policy-tau", "0.02", "--epsilon-steps", "500", "--vary", "learning-rate=1e-3,2e-3,3e-3,4e-3,1e-8", "--seeds",
        "2", "--jobs", "2", "--prune", "median", "--name", "pruned", cwd=tmp_path,
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "pruned")
    wait_until(lambda: sweep.plan().pruned, "a setting to be pruned", patience_s=300)
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    wait_until(lambda: sweep.queue_pid() is None, "the queue's end")
    for _ in range(2):  # the second time, there is nothing to do
        run_program("sweep", "resume", "pruned", cwd=tmp_path)
        run_program("sweep", "wait", "pruned", cwd=tmp_path)
    found = status("pruned", tmp_path)
    assert found["states"] == {"finished": 8, "pruned": 2}
    hopeless = [each for each in found["runs"] if each["learning_rate"] == 1e-8]
    assert [each["state"] for each in hopeless] == ["pruned", "pruned"] and hopeless[1]["env_steps"] == 0
    assert 1000 <= hopeless[0]["env_steps"] < 4000 and sweep.run(4).record().checkpoint is not None
    assert sweep.tries().get(hopeless[0]["run"], 1) == 1 and hopeless[1]["run"] not in sweep.tries()
    run_program("sweep", "add", "pruned", "--seeds", "1", cwd=tmp_path)
    assert len(sweep.plan().members) == 14
    run_program("sweep", "stop", "pruned", cwd=tmp_path)
