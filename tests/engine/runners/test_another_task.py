"""A run that is resumed with another task: what belongs to the task starts anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from engine.config.reading import make_config
from engine.protocol.messages import Changed, Episode, Log, Progress
from engine.runners.coordination.evaluation import score_of
from engine.runners.learning.checkpoint import save_policy
from engine.runners.learning.learner import CUT, HALVED_AFTER, DecaySchedule
from engine.runners.start import changed
from engine.runs.checkpoints import BEST_POLICY_FILE
from engine.runs.run import CONFIG_FILE
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.learner import CONFIG, make_learner

RATE = 5e-4
SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000, "parallel_envs": 4,
         "learning_rate": RATE, "learning_rate_schedule": "plateau", "eval_every": 20, "eval_episodes": 1,
         "advantage_learning": 0.5, "final_advantage_learning": 0.9}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a replay, of a run whose learning rate was cut."""
    reports = train(tmp_path_factory.mktemp("trained"), SNAKE, 600)
    assert of_kind(Progress, reports)[-1].learning_rate == pytest.approx(CUT * RATE)
    return checkpoint_of(reports)


def test_learning_rate_gamma_and_transitions_start_anew_and_the_log_says_so(trained: Path, tmp_path: Path) -> None:
    reports = train(tmp_path, {**SNAKE, "death_penalty": 1.5, "eval_every": 0}, 608, trained)
    first = of_kind(Progress, reports)[0]
    assert first.learning_rate == RATE
    assert first.replay_size < 600 and first.burnin_left > 0
    assert {change.name: change.value for change in of_kind(Changed, reports)} == {
        "learning_rate": RATE, "gamma": 0.98
    }  # fmt: skip
    (said,) = (log.text for log in of_kind(Log, reports) if log.text.startswith("another task"))
    assert "--death-penalty was 3.0" in said and "start anew" in said and "weights" in said


def test_returns_of_the_earlier_task_are_not_averaged_in(trained: Path, tmp_path: Path) -> None:
    reports = train(tmp_path, {**SNAKE, "death_penalty": 1.5, "eval_every": 0}, 900, trained)
    returns = [episode.episode_return for episode in of_kind(Episode, reports)]
    last = of_kind(Progress, reports)[-1]
    assert last.best_return == max(returns)
    assert last.mean_return == pytest.approx(sum(returns[-100:]) / len(returns[-100:]))


def test_the_same_task_resumes_with_everything(trained: Path, tmp_path: Path) -> None:
    reports = train(tmp_path, {**SNAKE, "eval_every": 0}, 608, trained)
    first = of_kind(Progress, reports)[0]
    assert first.learning_rate == pytest.approx(CUT * RATE)
    assert first.replay_size >= 600 and not first.burnin_left
    assert not of_kind(Changed, reports)
    assert not [log.text for log in of_kind(Log, reports) if "task" in log.text]


def test_new_games_do_not_repeat_those_of_the_beginning(tmp_path: Path) -> None:
    random = {**SNAKE, "epsilon": 1.0, "epsilon_steps": 1, "eval_every": 0, "burnin": 2000, "checkpoint_replay": True}
    before = checkpoint_of(train(tmp_path / "before", random, 400))
    after = checkpoint_of(train(tmp_path / "after", {**random, "death_penalty": 1.5}, 800, before))
    first, second = (load_file(each / "replay.safetensors")["storage.actions"] for each in (before, after))
    assert first.shape == second.shape
    assert (first == second).mean() < 0.7


def test_a_decay_counts_from_where_its_task_began(trained: Path, tmp_path: Path) -> None:
    decay = {**SNAKE, "learning_rate_schedule": "decay", "eval_every": 200}
    before = checkpoint_of(train(tmp_path / "before", decay, 600))
    after = checkpoint_of(train(tmp_path / "after", {**decay, "death_penalty": 1.5}, 608, before))
    assert json.loads((after / "state.json").read_text())["extra"]["schedule"] == {"begin": 600}
    others = checkpoint_of(train(tmp_path / "others", {**decay, "death_penalty": 1.5, "eval_episodes": 2}, 616, after))
    assert json.loads((others / "state.json").read_text())["extra"]["schedule"] == {"begin": 600}
    schedule = DecaySchedule(RATE, begin=600)
    assert schedule.after((0.0, 0.0), RATE, 600 + HALVED_AFTER) == RATE / 2


def test_a_score_by_another_reward_is_not_the_best(tmp_path: Path) -> None:
    best = tmp_path / BEST_POLICY_FILE
    save_policy(make_learner(CONFIG), best, 8, (1.0, 1000.0))
    assert score_of(best, CONFIG) == (1.0, 1000.0)
    assert score_of(best, CONFIG.changed(reward="classic")) == ()


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("mario", {"stage": "1-2"}),
        ("mario", {"reward": "classic"}),
        ("mario", {"actions": "simple"}),
        ("mario", {"frame_skip": 3}),
        ("snake", {"board": "6x6"}),
        ("snake", {"step_penalty": 0.5}),
        ("tetris", {"reward": "lines"}),
        ("tetris", {"curriculum": True}),
    ],
)
def test_what_makes_another_task(game: str, options: dict[str, object], tmp_path: Path) -> None:
    usual = make_config({"game": game})
    (tmp_path / CONFIG_FILE).write_text(usual.to_toml())
    assert not changed(usual, tmp_path, *usual.task_options)
    assert not changed(make_config({"game": game, "gamma": 0.5, "epsilon": 0.9}), tmp_path, *usual.task_options)
    before = usual.value(next(iter(options)))
    assert changed(make_config({"game": game, **options}), tmp_path, *usual.task_options) == dict.fromkeys(
        options, before
    )


@pytest.mark.parametrize(("options", "kept"), [({}, True), ({"death_penalty": 1.5}, False)])
def test_transitions_in_files_are_used_again_only_for_their_task(
    options: dict[str, float], kept: bool, tmp_path: Path
) -> None:
    files = {**SNAKE, "replay_device": "files", "eval_every": 0, "checkpoint_replay": False}
    before = checkpoint_of(train(tmp_path, files, 600))
    reports = train(tmp_path, {**files, **options}, 608, before)
    said = [log.text for log in of_kind(Log, reports) if "of another task" in log.text]
    assert (of_kind(Progress, reports)[0].replay_size >= 600) == kept == (not said)
