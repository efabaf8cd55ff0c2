"""A search as the teacher of a stage: lanes that go back, and what the student learns from it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.agents.networks import make_network
from engine.extras.distillation.mario.plan_search import STUCK_STEPS, PlanSearch
from engine.extras.distillation.mario.searched_task import SearchedTask
from engine.extras.distillation.student import Student
from engine.extras.distillation.tasks import Evaluations
from engine.extras.distillation.teachers import describe_student, load_teachers
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.runs.checkpoints import policy_metadata
from tests.support.games.mario import INTO_GOOMBA, RIGHT_B, TASK, running
from tests.support.program import json_lines, run_program


@contextlib.contextmanager
def searched_task(task: MarioTask, lanes: int, capacity: int) -> Iterator[SearchedTask]:
    """World 1-1 with a way that only runs, instead of the minute that a search takes."""
    (teacher,) = load_teachers(["1-1"], "mario")
    evaluations = Evaluations("1-1", describe_student([teacher], "small"), threads=1)
    search = PlanSearch(task, seed=0, threads=1)
    searched = SearchedTask(
        "1-1", task, search, lanes=lanes, capacity=capacity, seed=0, threads=1, rom=None, evaluations=evaluations
    )
    searched._follow(running(INTO_GOOMBA))
    try:
        yield searched
    finally:
        searched.close()
        search.close()


def test_a_lane_continues_from_a_state_of_another_one() -> None:
    env = MarioLanes(MarioTask(), 2, seed=3)
    env.reset()
    for _ in range(20):
        env.step(np.array([RIGHT_B, 0]))
    state = env.lane_state(0)
    first = [env.step(np.array([RIGHT_B, 0])) for _ in range(10)]
    env.load_lane(1, state)
    for expected in first:
        again = env.step(np.array([0, RIGHT_B]))
        np.testing.assert_array_equal(again.frames[1], expected.frames[0])
        assert again.info[1].tolist() == expected.info[0].tolist()


def test_lanes_that_draw_nothing_play_the_same_games() -> None:
    task = MarioTask(stage="1-1,4-4", stall_steps=40, sticky=0.25)
    drawn, blind = MarioLanes(task, 8, seed=1), MarioLanes(task, 8, seed=1, draws=False)
    drawn.reset()
    blind.reset()
    random = np.random.default_rng(0)
    for _ in range(150):
        actions = random.integers(0, drawn.actions, 8)
        expected, step = drawn.step(actions), blind.step(actions)
        for name in ("rewards", "terminated", "truncated", "returns", "results", "info"):
            np.testing.assert_array_equal(getattr(step, name), getattr(expected, name))


def test_what_is_stored_is_one_game_without_mistakes(one_thread: None) -> None:
    """A student that has learned nothing fails again and again; the states that are stored are those of lanes that went
    back, so each follows from the one before by the stored action."""
    network = make_network("small", 4, TASK.view.shape, 5)
    with searched_task(TASK, lanes=2, capacity=2000) as task:
        for _ in range(170):
            task.begin(Student(network, learning_rate=1e-3), led=1)
            task.finish()
        assert task.mistakes > 1 and task.replay.size > 40
        storage = task.replay._replay.storage
        alone = MarioLanes(dataclasses.replace(TASK, stall_steps=0), 1)
        frames = alone.reset()
        for entry in range(int(storage.written[0])):
            np.testing.assert_array_equal(storage.frames[0, entry], frames[0])
            step = alone.step(storage.actions[0, entry : entry + 1].astype(np.int64))
            assert not step.terminated[0]
            frames = step.frames


def test_the_student_mostly_begins_where_it_failed(one_thread: None) -> None:
    with searched_task(dataclasses.replace(TASK, noop_max=3), lanes=4, capacity=4000) as searched:
        searched.evaluate(lambda obs, masks: np.full(len(obs), RIGHT_B), episodes=2)
        assert searched._hard == [0, 1, 2, 3]  # whoever only runs meets the first enemy from every start
        searched._hard, searched._led = [2], 2
        starts = [state.console for state, _ in searched._starts]
        begun: dict[int, list[int]] = {lane: [] for lane in range(4)}
        for lane in range(4):
            for _ in range(40):
                searched._new_game(lane)
                begun[lane].append(starts.index(searched._env.lane_state(lane).console))
        assert all(set(begun[lane]) == {0, 1, 2, 3} for lane in range(4))
        assert all(begun[lane].count(2) < 20 for lane in (0, 1))  # the lanes that are led
        assert all(begun[lane].count(2) > 20 for lane in (2, 3))


def test_a_student_that_stands_still_learns_to_get_on(one_thread: None) -> None:
    """It is set free halfway through the 40 steps without progress, and learns for all of them what sets it free."""
    network = make_network("small", 4, TASK.view.shape, 5)
    with torch.no_grad():
        for weights in network.parameters():
            weights.zero_()  # prefers the first action, no button
    with searched_task(TASK, lanes=2, capacity=2000) as task:
        task._epsilons[:], task._led = 0, 1
        task._lanes[1] = task._new_game(1)  # the student's
        for _ in range(STUCK_STEPS):
            task.begin(Student(network, learning_rate=1e-3), led=1)
            task.finish()
        lane = task._lanes[1]
        assert [moment.action for moment in lane.moments] == [0] * (STUCK_STEPS // 2)
        assert {moment.label for moment in lane.moments} == {lane.plan[0]} != {0}
        for _ in range(len(lane.plan)):
            task.begin(Student(network, learning_rate=1e-3), led=1)
            task.finish()
        assert lane.gained > 10


@pytest.mark.long
@pytest.mark.process
def test_a_search_ends_with_half_of_the_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No way leads to the flag of 8-4 without `down`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ("--network", "small", "--minutes", "0.05", "--into", "one.safetensors")
    done = run_program("distill", "8-4", *arguments, cwd=tmp_path, check=2)
    assert "8-4: no way to the flag was found within half of --minutes" in done.stderr
    assert not list(tmp_path.glob("*.safetensors"))


@pytest.mark.long
@pytest.mark.process
def test_a_stage_is_learned_from_a_search_within_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ("--network", "small", "--steps", "20000", "--eval-every", "10000", "--eval-episodes", "31", "--json")
    done = run_program("distill", "1-1", "--into", "one.safetensors", *arguments, cwd=tmp_path)
    first, second, summary = json_lines(done.stdout)
    assert (first["tasks"][0]["task"], second["env_steps"]) == ("1-1", 20_000)
    assert summary["evaluation"]["clear_rate"] > 0.9
    assert policy_metadata(tmp_path / "one.safetensors")["teachers"] == ["1-1"]
    assert len(list((tmp_path / "cache" / "mario-tui" / "ways").iterdir())) == 1
