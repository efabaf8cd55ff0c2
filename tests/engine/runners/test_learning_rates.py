"""The schedule of the learning rate: when it is cut, and how far."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.reading import make_config
from engine.protocol.commands import Set
from engine.protocol.messages import Changed, Progress
from engine.runners.coordination.tuning import schedule_options
from engine.runners.learning.learner import CUT, GOOD, HALVED_AFTER, PATIENCE, DecaySchedule, PlateauSchedule
from engine.runners.start import unchanged
from engine.runs.run import CONFIG_FILE
from tests.support.in_process import checkpoint_of, of_kind, train

RATE = 5e-4


def rates(scores: list[tuple[float, float]], schedule: PlateauSchedule | None = None) -> list[float]:
    """The learning rate after each evaluation."""
    schedule, rate, after = schedule or PlateauSchedule(RATE), RATE, list[float]()
    for score in scores:
        rate = schedule.after(score, rate, 0)
        after.append(rate)
    return after


def test_scores_that_improve_keep_the_learning_rate() -> None:
    assert set(rates([(GOOD * step / 100, 0.0) for step in range(100)])) == {RATE}
    assert set(rates([(0.0, float(step)) for step in range(90)])) == {RATE}  # by return, where nothing is cleared


def test_it_is_cut_when_no_evaluation_was_better_for_a_while() -> None:
    after = rates([(GOOD / 2, 10.0)] + [(GOOD / 3, 99.0)] * (2 * PATIENCE))
    assert after == [RATE] * PATIENCE + [CUT * RATE] * (PATIENCE + 1)


def test_a_better_evaluation_starts_the_count_again() -> None:
    scores = [(0.3, 0.0)] + [(0.2, 0.0)] * (PATIENCE - 1) + [(0.4, 0.0)] + [(0.3, 0.0)] * (PATIENCE - 1)
    assert set(rates(scores)) == {RATE}


def test_the_first_good_evaluation_cuts_it_and_no_other_does() -> None:
    scores = [(0.9 * GOOD, 0.0), (GOOD, 0.0), (0.1, 0.0), (1.0, 0.0)] + [(0.2, 0.0)] * 3 * PATIENCE
    assert rates(scores) == [RATE] + [CUT * RATE] * (len(scores) - 1)


def test_a_rate_below_that_of_the_cut_is_left_alone() -> None:
    assert PlateauSchedule(RATE).after((1.0, 0.0), CUT * RATE / 10, 0) == CUT * RATE / 10


def test_decay_divides_the_rate_by_the_steps_and_never_raises_it() -> None:
    schedule = DecaySchedule(RATE)
    assert schedule.after((0.0, 0.0), RATE, 0) == RATE
    assert schedule.after((0.0, 0.0), RATE, HALVED_AFTER) == RATE / 2
    assert schedule.after((0.0, 0.0), RATE, 9 * HALVED_AFTER) == RATE / 10
    assert schedule.after((0.0, 0.0), RATE / 20, HALVED_AFTER) == RATE / 20


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-100, 4000)), max_size=60), st.integers(0, 60))
def test_it_never_rises_and_resumes_where_it_was(scores: list[tuple[float, float]], split: int) -> None:
    after = rates(scores)
    assert after == sorted(after, reverse=True)
    assert set(after) <= {RATE, CUT * RATE}
    first, second = PlateauSchedule(RATE), PlateauSchedule(RATE)
    before = rates(scores[:split], first)
    second.load_state(first.state())
    rate = before[-1] if before else RATE
    for score, expected in zip(scores[split:], after[split:], strict=True):
        rate = second.after(score, rate, 0)
        assert rate == expected


SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000, "parallel_envs": 4,
         "learning_rate": RATE, "learning_rate_schedule": "plateau", "eval_every": 20, "eval_episodes": 1}  # fmt: skip


def test_a_run_reports_the_cut_and_learns_with_the_new_rate(tmp_path: Path) -> None:
    reports = train(tmp_path, SNAKE, 600)
    cuts = [(change.name, change.before, change.value) for change in of_kind(Changed, reports)]
    assert cuts == [("learning_rate", RATE, CUT * RATE), ("gamma", 0.98, 0.99)]
    assert [progress.learning_rate for progress in of_kind(Progress, reports)][-1] == pytest.approx(CUT * RATE)


@pytest.mark.long
def test_a_gamma_that_the_user_sets_stays(tmp_path: Path) -> None:
    reports = train(tmp_path / "set", SNAKE, 600, commands=[Set(name="gamma", value=0.5)])
    assert [(change.name, change.value) for change in of_kind(Changed, reports)] == [
        ("gamma", 0.5), ("learning_rate", CUT * RATE)
    ]  # fmt: skip
    resumed = train(tmp_path / "resumed", SNAKE, 610, checkpoint_of(reports))
    assert not of_kind(Changed, resumed)
    state = json.loads((checkpoint_of(resumed) / "state.json").read_text())
    assert state["extra"]["tuned"] == {"learning_rate": CUT * RATE, "gamma": 0.5}
    never = train(tmp_path / "never", {**SNAKE, "final_gamma": None}, 600)
    assert [change.name for change in of_kind(Changed, never)] == ["learning_rate"]


@pytest.mark.long
def test_a_final_gamma_that_is_given_after_the_cut_holds_at_once(tmp_path: Path) -> None:
    before = checkpoint_of(train(tmp_path, {**SNAKE, "final_gamma": None}, 600))
    reports = train(tmp_path / "resumed", {**SNAKE, "final_gamma": 0.995}, 610, before)
    assert [(change.name, change.value) for change in of_kind(Changed, reports)] == [("gamma", 0.995)]
    again = train(tmp_path / "again", {**SNAKE, "final_gamma": 0.99}, 620, checkpoint_of(reports))
    assert [change.value for change in of_kind(Changed, again)] == [0.99]
    lower = train(tmp_path / "lower", {**SNAKE, "final_gamma": 0.99, "gamma": 0.9}, 630, checkpoint_of(again))
    assert [change.value for change in of_kind(Changed, lower)][-1] == 0.99


@pytest.mark.long
def test_advantage_learning_changes_with_the_cut_also_in_a_resumed_run(tmp_path: Path) -> None:
    def run(name: str, steps: int = 700, before: Path | None = None, **options: float | None) -> Path:
        return checkpoint_of(train(tmp_path / name, {**SNAKE, "advantage_learning": 0.5, **options}, steps, before))

    def weights(checkpoint: Path) -> bytes:
        return (checkpoint / "online.safetensors").read_bytes()

    changed = weights(run("changed", final_advantage_learning=0.9))
    assert changed != weights(run("same", final_advantage_learning=None))
    first = run("first", 600, final_advantage_learning=0.9)
    assert json.loads((first / "state.json").read_text())["extra"]["tuned"]["learning_rate"] == CUT * RATE
    assert changed == weights(run("resumed", before=first, final_advantage_learning=0.9))
    never = weights(run("never", advantage_learning=0.0))
    assert weights(run("off", advantage_learning=0.0, final_advantage_learning=0.9)) == never


@pytest.mark.long
def test_a_learning_rate_that_the_user_sets_stays(tmp_path: Path) -> None:
    reports = train(tmp_path, SNAKE, 600, commands=[Set(name="learning_rate", value=0.001)])
    assert [change.value for change in of_kind(Changed, reports)] == [0.001]
    resumed = train(tmp_path / "resumed", SNAKE, 1200, checkpoint_of(reports))
    assert not of_kind(Changed, resumed)
    judged = train(tmp_path / "judged", {**SNAKE, "eval_episodes": 2}, 1200, checkpoint_of(reports))
    assert not of_kind(Changed, judged)
    low = train(tmp_path / "low", SNAKE, 20, commands=[Set(name="learning_rate", value=RATE / 10)])
    assert not of_kind(Changed, train(tmp_path / "still", SNAKE, 40, checkpoint_of(low)))


@pytest.mark.parametrize("game", ["mario", "snake"])
def test_scores_under_other_conditions_are_not_its_best(game: str, tmp_path: Path) -> None:
    config = make_config({"game": game})
    (tmp_path / CONFIG_FILE).write_text(config.to_toml())
    assert unchanged(config, tmp_path, *schedule_options(config))
    if game == "mario":
        for options in ({"noop_max": 20}, {"eval_noop_min": 1}, {"eval_epsilon": 0.1}, {"learning_rate": 2 * RATE}):
            assert not unchanged(make_config(options), tmp_path, *schedule_options(config))


@pytest.mark.long
def test_another_schedule_or_learning_rate_starts_anew(tmp_path: Path) -> None:
    before = checkpoint_of(train(tmp_path, SNAKE, 600))
    reports = train(tmp_path / "resumed", {**SNAKE, "learning_rate": 2 * RATE}, 610, before)
    assert [change.value for change in of_kind(Changed, reports)] == [2 * RATE, 0.98]
    constant = train(tmp_path / "constant", {**SNAKE, "learning_rate_schedule": "constant"}, 1200, before)
    assert not of_kind(Changed, constant)
