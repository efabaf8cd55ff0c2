"""The policy with whose weights a run begins: finding it, refusing what does not fit, and beginning with it."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.config.command_line import add_arguments, command_line, given
from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.evaluation.policy import load_policy
from engine.games.mario.actions import action_names
from engine.runners.learning.factory import make_learner
from engine.runners.start import Start
from engine.runs import policies
from engine.runs.checkpoints import POLICY_FILE, POLICY_FORMAT, CheckpointError, policy_metadata
from engine.runs.lookup import fitting_policy, options_of_policy, with_located_policy
from mario_tui.launch import make_plan
from tests.support import in_process
from tests.support.policy_files import altered, shipped
from tests.support.program import nobody_is_left, run_program
from tests.support.runners import RUNNERS, SNAKE, train

BOARD = {"game": "snake", "board": "5x5"}
NO_UPDATE = ("--steps", "400", "--burnin", "2000", "--parallel-envs", "4", "--eval-every", "0")


def options(**values: Any) -> Any:
    asked = {"initial_policy": "mario-1-1", **values}
    return make_config({**options_of_policy(asked), **asked})


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy for 5x5 Snake after some updates."""
    folder = tmp_path_factory.mktemp("taught")
    reports = in_process.train(folder, {**BOARD, "burnin": 100, "batch_size": 32, "buffer_size": 2000}, 400)
    return in_process.checkpoint_of(reports) / POLICY_FILE


def parse(command: str) -> dict[str, Any]:
    """The options of a command."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return given(parser.parse_args(shlex.split(command)[1:]))


def same(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return all(np.array_equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_a_policy_of_the_package_keeps_its_name() -> None:
    config = with_located_policy(options())
    assert config.initial_policy == "mario-1-1"
    assert fitting_policy(config) == policies.path_of("mario-1-1")


def test_a_run_sees_what_its_policy_saw_and_swims_alike_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    swimmer = str(altered("mario-1-1", tmp_path, swim_strokes=True))
    assert make_plan({"initial_policy": swimmer}).config.value("swim_strokes")
    told = make_plan({"initial_policy": swimmer, "swim_strokes": False}).config
    assert not told.value("swim_strokes")
    assert make_plan(parse(command_line(told))).config == told
    assert not make_plan({"initial_policy": "mario-1-1"}).config.value("swim_strokes")
    assert make_config({}).value("observation") == "50x60-red"
    config = make_plan({"initial_policy": "mario-1-1"}).config
    assert (config.value("observation"), config.value("network")) == ("50x60", "small")
    with pytest.raises(ConfigError, match="must have observation 50x60-red, as this run, got 50x60"):
        make_plan({"initial_policy": "mario-1-1", "observation": "50x60-red"})


def test_a_policy_decides_game_board_network_and_actions_unless_they_are_given(tmp_path: Path) -> None:
    snake = make_plan({"initial_policy": "snake-12x12"}).config
    assert (snake.game, snake.value("board"), snake.value("paths")) == ("snake", "12x12", True)
    tetris = make_plan({"initial_policy": "tetris-10x20"}).config
    assert (tetris.game, tetris.value("board"), tetris.network_name) == ("tetris", "10x20", "afterstates")
    shown = str(altered("mario-1-1", tmp_path, actions=["noop", "left"], outputs=2))
    assert make_plan({"initial_policy": shown}).config.value("actions") == "noop,left"
    assert make_plan({"initial_policy": "mario-1-1"}).config.value("actions") == "right-only"
    with pytest.raises(ConfigError, match="must have frame_shape 5,6,6, as this run, got 5,12,12"):
        make_plan({"initial_policy": "snake-12x12", "board": "6x6"})
    for config in (snake, tetris):
        assert make_plan(parse(command_line(config))).config == config


@pytest.mark.process
def test_a_path_becomes_absolute(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(taught.parent)
    config = with_located_policy(options(**BOARD, initial_policy=POLICY_FILE))
    assert config.initial_policy == str(taught)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"initial_policy": "nowhere"}, "must be a policy; nowhere: no such checkpoint; accepted: "),
        ({"network": "nature"}, "must have network nature, as this run, got small in mario-1-1.safetensors"),
        (
            {"actions": "noop,right"},
            "must have actions noop,right, or some of these, as this run, got noop,right",
        ),
        ({"observation": "84x84"}, "must have observation 84x84, as this run, got 50x60"),
        ({"initial_policy": "snake-12x12", "game": "mario"}, "must have game mario, as this run, got snake"),
        ({"initial_policy": "snake-12x12", **BOARD}, "must have frame_shape 5,5,5, as this run, got 5,12,12"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_located_policy(options(**values))
    assert refused.value.field == "initial_policy"
    assert refused.value.reason.startswith(reason)


@pytest.mark.process
def test_weights_of_another_shape_than_the_file_says_are_refused(taught: Path, tmp_path: Path) -> None:
    weights, said = load_file(taught), policy_metadata(taught)
    bias = next(name for name, weight in weights.items() if weight.ndim == 1)
    weights[bias] = weights[bias][None]
    damaged = tmp_path / "damaged.safetensors"
    save_file(weights, damaged, {"format": POLICY_FORMAT, "policy": json.dumps(said)})
    config = make_config({**BOARD, "batch_size": 32, "buffer_size": 2000, "initial_policy": str(damaged)})
    spec = config.spec
    for begin in (
        lambda: load_policy(damaged),
        lambda: make_learner(Start(tmp_path, config), spec, seed=0),
    ):
        with pytest.raises(CheckpointError, match=rf"damaged.safetensors: damaged \(size mismatch for {bias}"):
            begin()


@pytest.mark.process
def test_a_path_in_a_file_of_options_is_relative_to_it(taught: Path, tmp_path: Path) -> None:
    (taught.parent / "run.toml").write_text('game = "snake"\nboard = "5x5"\ninitial_policy = "policy.safetensors"\n')
    assert make_plan({}, taught.parent / "run.toml").config.initial_policy == str(taught)


@pytest.mark.parametrize(
    "runner", ["single", *(pytest.param(name, marks=pytest.mark.long) for name in ("parallel", "ddp", "apex"))]
)
@pytest.mark.process
def test_every_runner_begins_with_it(runner: str, taught: Path, tmp_path: Path) -> None:
    more = RUNNERS.get(runner, ())
    events = train(tmp_path, *SNAKE, *more, *NO_UPDATE, "--initial-policy", str(taught))
    assert same(Path(events[-1]["checkpoint"]) / POLICY_FILE, taught)
    nobody_is_left(tmp_path)


@pytest.mark.process
def test_a_resumed_run_keeps_its_own_weights(taught: Path, tmp_path: Path) -> None:
    shape = {**BOARD, "batch_size": 32, "buffer_size": 2000, "checkpoint_replay": False, "initial_policy": str(taught)}
    first = in_process.checkpoint_of(in_process.train(tmp_path / "run", {**shape, "burnin": 100}, 400))
    assert not same(first / POLICY_FILE, taught)
    waits = {**shape, "burnin": 2000}
    second = in_process.checkpoint_of(in_process.train(tmp_path / "run", waits, 432, resume_from=first))
    assert same(second / POLICY_FILE, first / POLICY_FILE)


@pytest.mark.long
@pytest.mark.process
def test_a_resumed_run_takes_no_other(taught: Path, tmp_path: Path) -> None:
    train(tmp_path, *SNAKE, *NO_UPDATE)
    again = ("--resume", "latest", "--steps", "800", "--initial-policy", str(taught))
    done = run_program("--no-ui", *again, cwd=tmp_path, check=2)
    assert "--initial-policy can't be given to resume: the checkpoint has its own weights" in done.stderr


@pytest.mark.process
def test_a_policy_with_fewer_actions_plays_as_before_and_new_ones_are_like_the_most_similar(tmp_path: Path) -> None:
    mario = {"actions": "simple", "initial_policy": "mario-1-1", "observation": "50x60", "burnin": 100, "batch_size": 8}
    begun = (
        in_process.checkpoint_of(in_process.train(tmp_path, {**mario, "buffer_size": 500, "parallel_envs": 2}, 4))
        / POLICY_FILE
    )
    package = shipped("mario-1-1")
    screens = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (64, 4, 50, 60), np.uint8))
    with torch.no_grad():
        before, after = (load_policy(path)(screens) for path in (package, begun))
    names = action_names("simple")
    assert names[:5] == action_names("right-only") and names[5:] == ("A", "left")
    for new, like in ((5, names.index("right+A")), (6, names.index("noop"))):
        assert torch.allclose(after[:, new], after[:, like] - 0.5, atol=1e-4)
    gaps = [q[:, :5] - q[:, :1] for q in (before, after)]
    assert torch.allclose(gaps[0], gaps[1], atol=1e-4)
    assert (before.argmax(1) == after.argmax(1)).all()
