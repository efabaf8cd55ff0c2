"""The result of a run: its chosen policy over episodes that neither training nor the choice has seen."""

from __future__ import annotations

import itertools
import math
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config.capabilities import EVALUATION_SEED, FRESH_SEED, fresh_episodes
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.envs.factory import make_lanes
from engine.envs.lanes import on_host
from engine.games.mario.lanes import MarioLanes
from engine.host.client import HostClient
from engine.protocol.commands import Stop
from engine.protocol.messages import Done, Evaluation, FinalEvaluation, Log, Trained, Written
from engine.runners.coordination import evaluation
from engine.runners.coordination.evaluation import SHARE, FinalEvaluator
from engine.runners.learning.checkpoint import save_policy
from engine.runners.learning.learner import Learner
from engine.runners.links import ParentLink, ReportQueue
from engine.runs.checkpoints import BEST_POLICY_FILE
from engine.runs.run import Run
from tests.support import checkpoint_writer
from tests.support.checkpoint_writer import make_learner
from tests.support.in_process import of_kind, train
from tests.support.program import headless, json_lines, rest_of, run_program, runner_of, the_run, wait_until

SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000, "eval_episodes": 2}
AMPLE_S = 1e9


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return checkpoint_writer.config(tmp_path).changed(final_episodes=8)


def judge(run: Path, config: RunConfig, learner: Learner, wall_s: float = AMPLE_S) -> FinalEvaluation:
    """At 100 environment steps."""
    evaluator = FinalEvaluator(run, config, ParentLink(ReportQueue()), learner, 1)
    return evaluator.evaluate(100, wall_s, lambda judged, to_judge: None)


def another_learner(config: RunConfig) -> Learner:
    learner = make_learner(config, None)
    with torch.no_grad():
        for tensor in learner.agent.policy.parameters():
            tensor.neg_()
    return learner


def as_told(final: FinalEvaluation) -> tuple[Any, ...]:
    return final.episodes, final.clears, final.mean_return, final.results


def test_the_best_policy_is_judged_not_the_last_one(config: RunConfig, tmp_path: Path) -> None:
    ours, its = judge(tmp_path, config, make_learner(config, None)), judge(tmp_path, config, another_learner(config))
    assert ours.policy_env_steps == its.policy_env_steps == 100  # nothing was evaluated
    assert as_told(ours) != as_told(its)
    save_policy(another_learner(config), tmp_path / BEST_POLICY_FILE, 8, (1.0, 1000.0))
    found = judge(tmp_path, config, make_learner(config, None))
    assert (found.env_steps, found.policy_env_steps, found.note) == (100, 8, "")
    assert as_told(found) == as_told(its)
    assert found.episodes == 8
    assert found.mean_return.low < found.mean_return.mean < found.mean_return.high
    other = config.changed(death_penalty=1.0)  # the best of another task has not been chosen for this one
    assert judge(tmp_path, other, make_learner(other, None)).policy_env_steps == 100


def test_it_takes_at_most_a_tenth_of_the_runs_time(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a second here. Episodes that were begun together are counted together."""
    found = []
    for wall_s in (10.0, 2_000.0, 100_000.0):
        clock = itertools.count(1.0)
        monkeypatch.setattr(evaluation, "monotonic", lambda clock=clock: next(clock))
        found.append(judge(tmp_path, config.changed(final_episodes=40), make_learner(config, None), wall_s))
        assert next(clock) <= SHARE * wall_s + 5
    none, some, all_of_them = found
    assert (none.episodes, math.isnan(none.mean_return.mean)) == (0, True)
    assert none.note == some.note == "a tenth of the run's time is not enough for 40"
    assert 10 <= some.episodes < all_of_them.episodes == 40
    assert all_of_them.note == ""


def mario(**options: Any) -> RunConfig:
    return make_config({"actions": "right,right+B", **options})


@pytest.mark.parametrize(
    ("options", "noops", "most"),
    [
        ({}, (31, 255), 225),
        ({"noop_max": 60}, (61, 255), 195),
        ({"eval_noop_min": 31, "eval_noop_max": 120}, (121, 255), 135),
        ({"stage": "1-1,1-2", "noop_max": 250}, (251, 255), 10),
        ({"eval_epsilon": 0.1}, (31, 255), None),
        ({"random_phase": True}, (31, 255), None),
        ({"noop_max": 255, "eval_sticky_actions": 0.25}, (0, 255), None),
    ],
)
def test_mario_begins_where_neither_training_nor_evaluations_did(
    options: dict[str, Any], noops: tuple[int, int], most: int | None
) -> None:
    config = mario(**options)
    fresh = fresh_episodes(config)
    assert fresh is not None and fresh.most == most
    lanes = make_lanes(fresh.config, 4, threads=1, seed=FRESH_SEED, evaluation=True)
    assert isinstance(lanes, MarioLanes)
    assert (lanes.task.noop_min, lanes.task.noop_max) == noops
    lanes.close()


def test_no_episode_of_mario_counts_twice_and_no_start_is_used_again(tmp_path: Path) -> None:
    from tests.engine.runners.test_evaluator import mario_learner

    small = {"burnin": 100, "batch_size": 8, "buffer_size": 500, "amp": False}
    few = mario(noop_max=252, **small)
    found = judge(tmp_path, few, mario_learner(few))
    assert (found.episodes, found.starts) == (3, "253 to 255 no-ops")
    assert found.note == "only 3 of 100 fresh episodes differ"
    none = mario(noop_max=255, **small)
    found = judge(tmp_path, none, mario_learner(none))
    assert found.episodes == 0 and "no fresh episodes" in found.note


@pytest.mark.parametrize("options", [SNAKE, {"game": "tetris"}, {"game": "gym:CartPole-v1"}])
def test_other_games_begin_at_random_elsewhere_than_evaluations(options: dict[str, Any]) -> None:
    config = make_config(options)
    fresh = fresh_episodes(config)
    assert fresh is not None and fresh.most is None
    first = []
    for seed in (EVALUATION_SEED, FRESH_SEED):
        lanes = make_lanes(fresh.config, 100, threads=1, seed=seed, evaluation=True)
        lanes.spread_starts()
        first.append(on_host(lanes.reset()))
        if options["game"] == "tetris":  # boards are empty at first
            first[-1] = on_host(lanes.step(np.zeros(100, np.int64)).frames)
        lanes.close()
    assert not np.array_equal(first[0], first[1])


def test_training_that_is_done_is_judged_after_its_checkpoint_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    kinds = (Evaluation, Written, Trained, FinalEvaluation, Done)
    done = of_kind(kinds, train(tmp_path / "done", {**SNAKE, "eval_every": 32}, 64))
    assert [type(each) for each in done] == [Evaluation, Evaluation, Written, Trained, FinalEvaluation, Done]
    stopped = train(tmp_path / "stopped", {**SNAKE, "eval_every": 32}, 10**6, commands=[Stop(reason="enough")])
    assert [type(each) for each in of_kind(kinds, stopped)] == [Written, Done]
    for none in ({"eval_every": 0}, {"eval_every": 32, "final_episodes": 0}):
        found = of_kind(kinds, train(tmp_path / str(none), {**SNAKE, **none}, 64))
        assert not of_kind((Trained, FinalEvaluation), found)


WAITING = """
    import time
    from pathlib import Path
    import gymnasium
    import numpy as np

    class Waiting(gymnasium.Env):
        '''Once a checkpoint is written, it waits for a file.'''
        observation_space = gymnasium.spaces.Box(0, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if any(Path().glob("*step-*")):
                Path("waits").touch()
                while not Path("go").exists():
                    time.sleep(0.02)
            return self.np_random.random(2, np.float32), {}

        def step(self, action):
            return self.np_random.random(2, np.float32), float(action), True, False, {}

    gymnasium.register("Waiting-v0", Waiting)
"""
OPTIONS = ("--game", "gym:waiting:Waiting-v0", "--burnin", "50", "--batch-size", "8", "--buffer-size", "500", "--steps",
           "200", "--eval-every", "100", "--eval-episodes", "2", "--no-amp")  # fmt: skip


@pytest.mark.parametrize("end", ["played", "stopped", "its process is killed", "its host is killed"])
@pytest.mark.process
def test_whatever_ends_the_final_evaluation_the_run_is_finished(end: str, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(textwrap.dedent(WAITING))
    with headless(*OPTIONS, cwd=tmp_path) as process:
        run = wait_until(lambda: list(tmp_path.glob("checkpoints/*/waits")), "the final evaluation", by=process)[
            0
        ].parent
        run = Run(run)
        wait_until(lambda: run.record().state == "judging", "the state", by=process)
        assert [path.name for path in run.path.glob("step-*")] == ["step-000000000200"]  # committed before
        match end:
            case "stopped":
                with HostClient(run) as client:
                    client.send(Stop())
                    wait_until(lambda: "stopping" in run.log_path.read_text(), "the stop", by=process)
            case "its process is killed":
                runner_of(run).kill()
            case "its host is killed":
                os.kill(run.record().pid, signal.SIGKILL)
        (run.path / "go").touch()
        events = rest_of(process)
    record = run.record()
    assert (record.told_state, record.env_steps, process.returncode) == ("finished", 200, 0)
    if end == "its host is killed":
        assert record.result is None
        return
    assert events[-1]["reason"] == "200 environment steps are done"
    if end == "played":
        (final,) = (event for event in events if event["event"] == "final_evaluation")
        assert events[-1]["result"] == {name: value for name, value in final.items() if name != "event"}
        assert record.result is not None and record.result.episodes == final["episodes"]
    else:
        assert events[-1]["result"] is None and record.result is None
        told = " ".join(event.text for event in _log_of(run))
        assert ("was stopped" if end == "stopped" else "no result: in its final evaluation the runner") in told


def _log_of(run: Run) -> list[Log]:
    from engine.runs.recording import read_recording

    return [event for event in read_recording(run.history_path)[0].events if isinstance(event, Log)]  # type: ignore[union-attr]


@pytest.mark.process
def test_eval_fresh_plays_the_episodes_of_the_final_evaluation(tmp_path: Path) -> None:
    snake = ("--game", "snake", "--board", "5x5", "--steps", "64", "--eval-every", "32", "--eval-episodes", "2",
             "--burnin", "50", "--batch-size", "8", "--no-amp", "--final-episodes", "0")  # fmt: skip
    run_program("--no-ui", *snake, "--parallel-envs", "2", cwd=tmp_path)
    (said,) = json_lines(run_program("eval", "latest", "--fresh", "--episodes", "20", "--json", cwd=tmp_path).stdout)
    run = the_run(tmp_path)
    config = run.config()
    from tests.engine.runners.test_evaluator import mario_learner  # that of any game

    wanted = judge(run.path, config.changed(final_episodes=20), mario_learner(config))
    assert (said["fresh"], said["seed"], said["episodes"]) == (True, FRESH_SEED, 20)
    assert (said["mean_return"], said["trained_env_steps"]) == (wanted.mean_return.mean, wanted.policy_env_steps)
    assert (said["mean_return_low"], said["mean_score"]) == (wanted.mean_return.low, wanted.results[0].mean)
