"""Numbers of a run that are changed by hand: while it goes on, and with options on resume."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.protocol.commands import Checkpoint, Command, Set, Stop, Tunable
from engine.protocol.messages import Changed, Log, Progress, Written
from engine.runners.shared_state import SharedState
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.learner import CONFIG, feed, make_learner
from tests.support.resealed import resealed

SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000, "replay_ratio": 4.0,
         "epsilon": 0.4, "prioritized_replay": True}  # fmt: skip


def test_beta_is_taken_each_time_that_it_is_set_also_to_what_it_was_set_to_before() -> None:
    learner, shared_state = make_learner(dataclasses.replace(CONFIG, beta_annealing=0.01)), SharedState(1)
    shared_state.open()
    for _ in range(2):
        shared_state.tune("beta", 0.6)
        learner.settings.follow(shared_state)
        assert learner.replay.beta == 0.6
        feed(learner, 30, seed=0)
        annealed = learner.replay.beta
        assert annealed > 0.6
        learner.settings.follow(shared_state)  # told again, but not set again
        assert learner.replay.beta == annealed


def test_gamma_reaches_the_replay_and_the_values_of_boards() -> None:
    tetris = make_config({"game": "tetris", "board": "4x8", "buffer_size": 1000, "burnin": 100, "batch_size": 32})
    learner, shared_state = make_learner(tetris, make_lanes(tetris, 4, threads=1, seed=0).spec), SharedState(1)
    shared_state.open()
    shared_state.tune("gamma", 0.5)
    learner.settings.follow(shared_state)
    assert learner.settings.values["gamma"] == learner.replay.gamma == 0.5
    networks = (learner.agent.online, learner.agent.target, learner.agent.policy)
    assert [network.gamma for network in networks] == [0.5] * 3


@pytest.mark.parametrize("prioritized", [True, False])
def test_beta_of_a_uniform_replay_is_not_announced_as_changed(prioritized: bool, tmp_path: Path) -> None:
    commands = [Set(name="beta", value=0.7), Set(name="learning_rate", value=0.125)]
    reports = train(tmp_path, {**SNAKE, "prioritized_replay": prioritized}, 16, commands=commands)
    warnings = [log.text for log in of_kind(Log, reports) if log.level == "warning" and "beta" in log.text]
    assert [changed.name for changed in of_kind(Changed, reports)] == ["beta", "learning_rate"][1 - prioritized :]
    expected = [] if prioritized else ["beta: has no effect on uniform replay; needs --prioritized-replay"]
    assert warnings == expected


def test_gamma_does_not_change_where_rewards_contain_it(tmp_path: Path) -> None:
    tetris = {"game": "tetris", "board": "4x8", "curriculum": True, "burnin": 100, "batch_size": 32}
    reports = train(tmp_path, tetris, 64, commands=[Set(name="gamma", value=0.5)])
    assert not of_kind(Changed, reports)
    assert any(log.text.startswith("gamma: can't change with --curriculum") for log in of_kind(Log, reports))
    with pytest.raises(ConfigError, match="must be none with --curriculum"):
        make_config({**tetris, "final_gamma": 0.99, "learning_rate_schedule": "decay", "eval_every": 1000})
    checkpoint = checkpoint_of(reports)
    state = json.loads((checkpoint / "state.json").read_text())
    state["extra"]["tuned"] = {"gamma": 0.5}  # as an earlier version let it change
    (checkpoint / "state.json").write_text(json.dumps(state))
    resealed(checkpoint)
    changes = of_kind(Changed, train(tmp_path, tetris, 128, checkpoint))
    assert [(change.name, change.before, change.value) for change in changes] == [("gamma", 0.5, 0.97)]


def test_a_replay_whose_rewards_contain_gamma_is_not_learned_with_another(tmp_path: Path) -> None:
    tetris = {"game": "tetris", "board": "4x8", "afterstates": False, "burnin": 100, "batch_size": 32}
    for curriculum, kept in ((False, True), (True, False)):
        options, folder = {**tetris, "curriculum": curriculum}, tmp_path / str(curriculum)
        before = checkpoint_of(train(folder, options, 160))
        first = of_kind(Progress, train(folder, {**options, "gamma": 0.5}, 192, before))[0]
        assert (first.replay_size >= 160) == kept


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ([Checkpoint()], [8, 16]),  # the automatic one answers it
        ([Set(name="learning_rate", value=0.125), Checkpoint()], [8, 8, 16]),
        ([Set(name="learning_rate", value=0.125), Stop()], [8, 8]),  # or the change would be lost
        ([Stop()], [8]),
    ],
)
def test_a_checkpoint_is_written_again_only_if_a_setting_has_changed_since(
    commands: list[Command], expected: list[int], tmp_path: Path
) -> None:
    reports = train(tmp_path, {**SNAKE, "save_every": 8}, 16, commands=commands)
    assert [written.env_steps for written in of_kind(Written, reports)] == expected


def test_what_beats_a_number_that_was_set_by_hand_is_told(tuned: Path, tmp_path: Path) -> None:
    reports = train(tmp_path, {**SNAKE, "replay_ratio": 8.0, "epsilon": 0.1}, 320, tuned)
    found = {change.name: (change.before, change.value) for change in of_kind(Changed, reports)}
    assert found == {"replay_ratio": (2.0, 8.0), "epsilon_scale": (0.5, 1.0)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a run whose numbers were changed, and that has learned since."""
    numbers: dict[Tunable, float] = {"learning_rate": 0.01, "epsilon_scale": 0.5, "replay_ratio": 2.0, "beta": 0.6}
    commands = [Set(name=name, value=value) for name, value in numbers.items()]
    return checkpoint_of(train(tmp_path_factory.mktemp("tuned"), SNAKE, 240, commands=commands))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {"learning_rate": 0.01, "epsilon_scale": 0.5, "replay_ratio": 2.0}),
        ({"learning_rate": 1e-4}, {"epsilon_scale": 0.5, "replay_ratio": 2.0}),
        ({"epsilon": 0.1, "replay_ratio": 8.0}, {"learning_rate": 0.01}),
    ],
)
def test_an_option_given_on_resume_counts_more_than_what_was_changed_by_hand(
    options: dict[str, Any], kept: dict[str, float], tuned: Path, tmp_path: Path
) -> None:
    reports = train(tmp_path, {**SNAKE, **options}, 256, tuned)
    expected = options.get("learning_rate", 0.01)
    assert {progress.learning_rate for progress in of_kind(Progress, reports)} == {expected}
    state = json.loads((checkpoint_of(reports) / "state.json").read_text())
    assert state["extra"]["tuned"] == kept


def test_beta_goes_on_annealing_on_resume_unless_it_is_given_anew(tuned: Path, tmp_path: Path) -> None:
    def first_beta(name: str, checkpoint: Path, **options: Any) -> float:
        reports = train(tmp_path / name, {**SNAKE, "beta_annealing": 0.0, **options}, 256, checkpoint)
        return float(of_kind(Progress, reports)[0].beta)

    held = json.loads((tuned / "state.json").read_text())["beta"]
    assert held > 0.6
    assert first_beta("same", tuned) == held
    assert first_beta("given", tuned, beta=0.9) == 0.9
    assert first_beta("uniform", tuned, prioritized_replay=False) == 0.0
    uniform = checkpoint_of(train(tmp_path / "before", {**SNAKE, "prioritized_replay": False}, 240))
    assert first_beta("from uniform", uniform) == 0.4
