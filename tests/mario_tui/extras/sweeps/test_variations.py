"""What varies in a sweep: grids, samples, plans, and what is refused before anything starts."""

from __future__ import annotations

import resource
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.command_line import given
from engine.errors import UserError
from engine.runs.sweep import Member, Search, Sweep, SweepPlan
from mario_tui.extras.sweeps.command import sweep_parser
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.extras.sweeps.options import asked_settings, read_plan
from mario_tui.extras.sweeps.results import commands_of, listed, results_of, setting_text
from mario_tui.extras.sweeps.search import Evaluations, next_setting
from mario_tui.extras.sweeps.variations import grid, sample
from tests.support.program import (
    refusal,
)
from tests.support.sweeps import SNAKE


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
    options = sweep_parser("gym").parse_args(["--trust"])
    assert read_plan(tmp_path / "plan.toml", options, {})["env_args"] == '{"is_slippery":true}'
    assert [each["env_args"] for each in asked_settings(options)] == [
        '{"is_slippery":false,"map_name":"4x4"}', "{}"
    ]  # fmt: skip


def test_a_task_of_several_stages_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'vary.stage = ["1-1,1-2", "1-3"]\nvary.n-step = [3.0, 1]\nvary.gamma = "0.9,0.95"\n'
    )
    options = sweep_parser().parse_args([])
    read_plan(tmp_path / "plan.toml", options, {})
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
    assert read_plan(folder / "plan.toml", options, {})["initial_policy"] == str(policy)
    assert options.vary == [f"initial-policy={policy},mario-1-1"]


def test_a_setting_is_the_same_whatever_the_order_of_its_options(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"gamma": 0.9, "n_step": 3}, {"n_step": 3, "gamma": 0.9}]
    plan = SweepPlan(options={}, jobs=1, threads=1, members=tuple(Member(each, n) for n, each in enumerate(settings)))
    assert len(plan.settings) == 1 and "--seeds 2" in commands_of(plan)[0]
    (result,) = results_of(create_sweep(tmp_path, "same", plan), plan)
    assert [member.seed for member in result.members] == [0, 1]


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
    ("arguments", "reason"),
    [
        (("--vary", "network=nets:Tiny,nets:Nope"), "nets.py has no Nope"),
        (("--vary", "network=nets:Tiny,mlp", "--device", "cuda:99"), "--device: cuda:99: this machine has"),
    ],
)  # fmt: skip
@pytest.mark.process
def test_what_a_run_would_refuse_at_its_start_is_refused_before_the_queue_starts(
    arguments: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nclass Tiny(torch.nn.Linear):\n    def __init__(self, stack, shape, actions):\n"
        "        super().__init__(stack * shape[0], actions)\n"
        "    def forward(self, x):\n        return super().forward(x.flatten(1))\n"
    )
    assert reason in refusal("sweep", "--game", "gym:CartPole-v1", *arguments, cwd=tmp_path)
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


# ---------------------------------------------------------------------------------- the table
