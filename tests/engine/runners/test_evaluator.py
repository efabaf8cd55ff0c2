"""The best policy of a run and its score: one file, whatever the run goes on from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.games.mario.lanes import MarioLanes
from engine.protocol.commands import Evaluate, Pause, Stop
from engine.protocol.messages import Beat, Done, Evaluation
from engine.runners.coordination.evaluation import STARTING_S, Evaluator, score_of
from engine.runners.learning import factory
from engine.runners.learning.checkpoint import save_policy
from engine.runners.learning.learner import Learner
from engine.runners.links import CommandQueue, ParentLink, ReportQueue
from engine.runners.shared_state import SharedState
from engine.runners.start import Start
from engine.runs.checkpoints import BEST_POLICY_FILE, policy_metadata
from tests.support import checkpoint_writer
from tests.support.checkpoint_writer import make_learner
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.policy_files import shipped

UNMATCHED = (1.0, 1000.0)
SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000, "eval_episodes": 2}

MARIO = {
    "actions": "right,right+B", "burnin": 100, "batch_size": 8, "buffer_size": 500, "amp": False, "eval_episodes": 4,
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return dataclasses.replace(checkpoint_writer.config(tmp_path), eval_episodes=4)


def evaluate(run: Path, config: RunConfig, learner: Learner, env_steps: int) -> Evaluation:
    """What a process that goes on in a run's folder finds, after it asked for the time that lanes need to start."""
    queue = ReportQueue()
    Evaluator(run, config, ParentLink(queue), learner, threads=1).evaluate(env_steps)
    reports = [queue.get()]
    while queue.poll():
        reports.append(queue.get())
    assert isinstance(reports[0], Beat) and reports[0].within_s > 60
    (found,) = (report for report in reports if isinstance(report, Evaluation))
    return found


def mario_learner(config: RunConfig) -> Learner:
    return factory.make_learner(Start(Path(), config), make_lanes(config, 1, threads=1, seed=0).spec, seed=0)


def test_a_worse_policy_replaces_the_best_one_neither_after_a_crash_nor_ever(config: RunConfig, tmp_path: Path) -> None:
    best, learner = tmp_path / BEST_POLICY_FILE, make_learner(config, None)
    first = evaluate(tmp_path, config, learner, 8)
    assert first.best
    assert score_of(best, config) == (first.clears / 4, first.mean_return)
    assert evaluate(tmp_path, config, learner, 16).best  # as good, and newer
    save_policy(learner, best, 24, UNMATCHED)
    assert not evaluate(tmp_path, config, learner, 32).best
    assert policy_metadata(best)["env_steps"] == 24


def test_a_run_from_anothers_checkpoint_keeps_the_best_of_its_own(config: RunConfig, tmp_path: Path) -> None:
    learner = make_learner(config, None)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    save_policy(learner, tmp_path / "old" / BEST_POLICY_FILE, 8, UNMATCHED)
    assert evaluate(tmp_path / "new", config, learner, 16).best
    assert (tmp_path / "new" / BEST_POLICY_FILE).is_file()


def test_the_best_at_another_task_gives_way(config: RunConfig, tmp_path: Path) -> None:
    best, other = tmp_path / BEST_POLICY_FILE, config.changed(death_penalty=1.0)
    save_policy(make_learner(config, None), best, 8, UNMATCHED)
    assert evaluate(tmp_path, other, make_learner(other, None), 16).best
    assert policy_metadata(best)["death_penalty"] == 1.0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda best, learner: best.unlink(),
        lambda best, learner: best.write_bytes(b"nonsense"),
        lambda best, learner: save_policy(learner, best, 8),  # as before scores were kept
    ],
    ids=["missing", "damaged", "without a score"],
)
def test_a_best_policy_that_tells_no_score_gives_way(
    spoil: Callable[[Path, Learner], None], config: RunConfig, tmp_path: Path
) -> None:
    best, learner = tmp_path / BEST_POLICY_FILE, make_learner(config, None)
    save_policy(learner, best, 8, UNMATCHED)
    assert score_of(best, config) == UNMATCHED
    spoil(best, learner)
    assert score_of(best, config) == ()
    assert evaluate(tmp_path, config, learner, 16).best


def test_an_evaluation_has_conditions_of_its_own() -> None:
    held_out = {"eval_noop_min": 31, "eval_noop_max": 120, "eval_sticky_actions": 0.5}
    for options, conditions in (({}, (0.0, 0, 7)), (held_out, (0.5, 31, 120))):
        config = make_config({"sticky_actions": 0.25, "noop_max": 7, **options})
        training, evaluation = (
            make_lanes(config, 1, threads=1, seed=0, evaluation=evaluation) for evaluation in (False, True)
        )
        assert isinstance(training, MarioLanes) and isinstance(evaluation, MarioLanes)
        assert (training.task.sticky, training.task.noop_min, training.task.noop_max) == (0.25, 0, 7)
        assert (evaluation.task.sticky, evaluation.task.noop_min, evaluation.task.noop_max) == conditions


def test_random_decisions_are_the_same_in_every_evaluation(tmp_path: Path) -> None:
    """An evaluator that goes on, and that of a resumed run. Mario only runs, so that an episode is short."""
    learner, results = mario_learner(make_config(MARIO)), []
    for conditions in ({}, {"eval_epsilon": 0.5}, {"eval_sticky_actions": 0.9}):
        config, queue = make_config({**MARIO, **conditions}), ReportQueue()
        for evaluations in (2, 1):
            evaluator = Evaluator(tmp_path, config, ParentLink(queue), learner, threads=1)
            for _ in range(evaluations):
                evaluator.evaluate(8)
        reports = [queue.get()]
        while queue.poll():
            reports.append(queue.get())
        found = [(each.mean_return, each.results[0]) for each in of_kind(Evaluation, reports)]
        assert len(found) == 3 and len(set(found)) == 1
        assert sum(each.within_s >= STARTING_S for each in of_kind(Beat, reports)) == 2  # time to make lanes, once each
        results.append(found[0])
    assert len(set(results)) == 3


def test_each_evaluation_may_make_environments_anew(tmp_path: Path) -> None:
    config, queue = make_config({"game": "gym:CartPole-v1", "eval_episodes": 1}), ReportQueue()
    evaluator = Evaluator(tmp_path, config, ParentLink(queue), mario_learner(config), threads=1)
    for _ in range(2):
        evaluator.evaluate(8)
    reports = [queue.get()]
    while queue.poll():
        reports.append(queue.get())
    kinds = [
        type(each)
        for each in reports
        if isinstance(each, Evaluation) or (isinstance(each, Beat) and each.within_s > 60)
    ]
    assert kinds == [Beat, Evaluation, Beat, Evaluation]


def test_scores_under_other_conditions_are_not_compared(tmp_path: Path) -> None:
    config = make_config({**MARIO, "noop_max": 7, "sticky_actions": 0.25})
    best, learner = tmp_path / BEST_POLICY_FILE, mario_learner(config)
    save_policy(learner, best, 8, UNMATCHED)
    assert score_of(best, config) == score_of(best, config.changed(sticky_actions=0.5)) == UNMATCHED
    for other in ({"eval_noop_min": 1}, {"eval_noop_max": 8}, {"noop_max": 8}, {"eval_epsilon": 0.01},
                  {"eval_sticky_actions": 0.1}, {"eval_episodes": 2}, {"random_phase": True},
                  {"halfway_starts": 0.5}):  # fmt: skip
        assert score_of(best, config.changed(**other)) == ()


def test_the_score_of_a_policy_from_before_a_condition_existed_counts() -> None:
    """Otherwise the first evaluation of a resumed run would replace its best policy."""
    best = shipped("mario-1-1")
    said = policy_metadata(best)
    assert "random_phase" not in said["evaluation"]
    assert score_of(best, make_config({"observation": said["observation"]})) == tuple(said["score"])


def test_evaluations_asked_for_many_times_are_played_once(tmp_path: Path) -> None:
    reports = train(tmp_path, SNAKE, 16, commands=[Evaluate()] * 50)  # as by a key that is held
    assert len(of_kind(Evaluation, reports)) == 1


def test_a_stop_does_not_wait_for_evaluations(tmp_path: Path) -> None:
    reports = train(tmp_path, SNAKE, 10_000_000, commands=[Evaluate(), Evaluate(), Stop(reason="enough")])
    assert of_kind(Evaluation, reports) == []
    assert reports[-1] == Done(reason="enough")


def test_an_evaluation_in_progress_is_given_up_for_a_stop(config: RunConfig, tmp_path: Path) -> None:
    commands, queue = CommandQueue(), ReportQueue()
    link, learner = ParentLink(queue, commands), make_learner(config, None)
    commands.put(Stop())
    Evaluator(tmp_path, config, link, learner, threads=1).evaluate(8)
    commands.put(Pause())
    assert link.commands() == [Stop(), Pause()]  # it is still there for whoever obeys
    queue.only_read()
    reports = []
    with pytest.raises(EOFError):
        while True:
            reports.append(queue.get())
    assert of_kind(Evaluation, reports) == []
    assert not (tmp_path / BEST_POLICY_FILE).exists()


def test_an_evaluation_given_up_for_a_stop_is_made_up_for_after_the_resume(tmp_path: Path) -> None:
    stopped = train(tmp_path, {**SNAKE, "eval_every": 8}, 1600, commands=[Stop(reason="enough")])
    resumed = train(tmp_path, {**SNAKE, "eval_every": 1000}, 80, resume_from=checkpoint_of(stopped))
    assert [evaluation.env_steps for evaluation in of_kind(Evaluation, stopped, resumed)] == [16]


def test_members_of_their_own_pace_are_paused_during_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for kind, name in ((SharedState, "pause"), (Evaluator, "evaluate"), (SharedState, "resume")):
        monkeypatch.setattr(kind, name, noted(done, getattr(kind, name)))
    evaluations = of_kind(Evaluation, train(tmp_path, {**SNAKE, "eval_every": 100}, 200))
    assert done == ["pause", "evaluate", "resume"] * len(evaluations) != []


def noted(done: list[str], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which also notes that it was called."""

    def call(*arguments: Any) -> Any:
        done.append(method.__name__)
        return method(*arguments)

    return call
