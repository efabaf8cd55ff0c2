"""The stages on which episodes are played, from the console's memory to the table of stages."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from engine.config.game import game_of
from engine.envs.episode import EpisodeRecord
from engine.evaluation.policy import load_policy
from engine.games.mario.actions import STAGES
from engine.games.mario.factory import task_of_policy
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.protocol.messages import PROTOCOL, Evaluation, Hello, Lanes, TaskRecord
from engine.protocol.outcome import Conditions
from engine.runners.actor import Actor
from engine.runners.coordination.stats import LaneStats
from engine.runners.shared_state import SharedState
from engine.runs import checkpoints
from engine.runs.checkpoint_state import KeptLane, KeptTask
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.panels.evaluations import EvaluationsPanel
from tests.support.policy_files import shipped

OUTCOME = game_of("mario").outcome
RESULTS = (1.0, 0.0, 0.0)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_lanes_report_the_stage_at_the_begin_of_a_step(emulator: str) -> None:
    lanes = 8 if emulator == "native" else 2
    env = MarioLanes(MarioTask(stage="random", noop_max=0), lanes, emulator=emulator, seed=1)
    env.reset()
    seen = set()
    for _ in range(40):
        step = env.step(np.full(lanes, 3))
        told = [STAGES.index(f"{world}-{stage}") for world, stage in zip(*_named(step.info), strict=True)]
        assert step.tasks.tolist() == told
        seen |= set(told)
    assert len(seen) >= lanes - 2
    env.close()


def _named(info: Any) -> tuple[list[int], list[int]]:
    from engine.games.mario.rules import INFO_STAGE, INFO_WORLD

    return info[:, INFO_WORLD].tolist(), info[:, INFO_STAGE].tolist()


@pytest.mark.long
def test_an_episode_of_the_whole_game_reports_the_flags_it_reached() -> None:
    path = shipped("mario-1-1")
    said, network = checkpoints.policy_metadata(path), load_policy(path)
    env = MarioLanes(task_of_policy(said, stage="game", conditions=Conditions()), 4)
    actor = Actor(env, ladder=np.zeros(4), epsilon_steps=1, seed=0)

    def policy(obs: Any) -> torch.Tensor:
        with torch.no_grad():
            return network(torch.from_numpy(obs))

    seen: set[str] = set()
    while "1-2" not in seen:  # the policy has learned 1-1 alone
        _, episodes = actor.finish(actor.begin(actor.choose(policy, 1)))
        for episode in episodes:
            assert episode.cleared_tasks(OUTCOME) == list(STAGES[: episode.task])
            seen.add(STAGES[episode.task])
    actor.close()


def test_shared_state_carries_every_stage() -> None:
    shared_state = SharedState(1)
    every = EpisodeRecord(0, 1.5, 2, True, 31, 2**32 - 1, (3.0, 4.0, 7.0))
    shared_state.record(0, 8, 32, [every])
    assert list(shared_state.new_episodes()) == [(0, every)]
    assert every.cleared_tasks(OUTCOME) == list(STAGES)


def test_records_of_stages_are_saved_in_a_checkpoint_and_restored() -> None:
    board = LaneStats(OUTCOME, 1, 2)
    first, second = 1 << 0, 1 << 1
    for number in range(150):  # the whole game: ever more of them come to 1-2, few clear it
        cleared = (first if number >= 50 else 0) | (second if number % 50 == 49 and number > 50 else 0)
        ended_in = 2 if cleared & second else 1 if cleared else 0
        board.record_episode(0, EpisodeRecord(number % 2, 1.0, 1, False, ended_in, cleared, RESULTS), 10 * number)
    one, two, three = board.tasks()
    assert one == TaskRecord(task="1-1", episodes=150, clears=100, recent=100, recent_clears=100, first_clear=500)
    assert two == TaskRecord(task="1-2", episodes=100, clears=2, recent=100, recent_clears=2, first_clear=990)
    assert (three.task, three.episodes, three.clears, three.first_clear) == ("1-3", 2, 0, None)
    again = LaneStats(OUTCOME, 1, 2)
    tasks = msgspec.json.decode(json.dumps(board.tasks_state()), type=dict[str, KeptTask])
    again.load_state([KeptLane(**lane) for lane in board.state()], tasks)
    assert again.tasks() == board.tasks()
    again.record_episode(0, EpisodeRecord(0, 1.0, 1, False, 0, 0, RESULTS), 2000)
    assert again.tasks()[0].recent_clears == 99


def test_games_without_stages_have_no_records() -> None:
    board = LaneStats(game_of("snake").outcome, 1, 1)
    board.record_episode(0, EpisodeRecord(0, 1.0, 1, False, -1, 0, (3.0,)), 10)
    assert board.tasks() == []


class Panel(EvaluationsPanel):
    """A panel without a screen."""

    rows = 8

    @property
    def body(self) -> tuple[int, int]:
        return 50, self.rows


def snapshot(records: list[TaskRecord], evaluations: int) -> Snapshot:
    hello = Hello(
        protocol=PROTOCOL, outcome=OUTCOME,
        run="r", path="r", game="mario", task="random", runner="single", pid=1, steps=1, render=False,
        points=[], events=[],
    )  # fmt: skip
    found = Evaluation(env_steps=5, episodes=20, clears=1, mean_return=1.0, best=True, seconds=1.0)
    return Snapshot(hello=hello, lanes=Lanes(lanes=[], tasks=records), others=(found,) * evaluations)


def record(index: int, clears: int) -> TaskRecord:
    first = 12_300 if clears else None
    return TaskRecord(
        task=STAGES[index], episodes=200, clears=clears, recent=100, recent_clears=clears, first_clear=first
    )


def test_every_stage_has_its_line_if_there_is_room() -> None:
    panel = Panel()
    panel.rows = 40
    shown = panel.compose_text(snapshot([record(index, index) for index in range(32)], 2), 50).plain.splitlines()
    assert shown[0] == "random: 31 of 32 stages cleared"
    assert [line[:3] for line in shown[1:33]] == list(STAGES)
    assert shown[1].endswith("0 of last 100 not cleared")
    assert shown[32].endswith("31 of last 100 first at 12.3k")
    assert "at step" in shown[33]
    assert max(map(len, shown)) <= 50


def test_the_best_stages_are_shown_if_there_is_no_room_for_all() -> None:
    panel = Panel()
    shown = panel.compose_text(snapshot([record(index, index) for index in range(32)], 9), 50).plain.splitlines()
    assert len(shown) == panel.rows
    assert Counter(line[:3] for line in shown)["8-4"] == 1
    assert "31 more" in "\n".join(shown) or "30 more" in "\n".join(shown)
