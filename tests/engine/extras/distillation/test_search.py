"""Searches in the emulator: plans, ways to the flag, what to do after a mistake, and the user's cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.extras.distillation.mario.plan_search import STUCK_STEPS, PlanSearch, Trials, Way
from engine.extras.distillation.mario.ways import (
    WayAdaptation,
    WayCache,
    find_way,
    starts_of,
    way_to_flag,
)
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.task import MarioTask
from tests.support.games.mario import INTO_GOOMBA, RIGHT_B, TASK, running


def clears(task: MarioTask, start: LaneState, actions: np.ndarray) -> bool:
    env = MarioLanes(task, 1, restart=False)
    env.load_lane(0, start)
    return any(bool(env.step(np.array([action])).success[0]) for action in actions)


def test_every_number_of_no_ops_is_a_start_of_its_own() -> None:
    assert len(starts_of(MarioTask(noop_max=120))) == 121


def test_a_way_knows_where_it_comes_closest() -> None:
    way = Way(np.zeros(4, np.int64), np.array([7, 7, 8, 7]), np.array([10, 30, 31, 50]))
    assert way.step_at(7, 33) == 1
    assert way.step_at(8, 1000) == 2
    assert way.step_at(9, 10) is None


def test_a_way_knows_where_mario_advances() -> None:
    way = Way(np.zeros(6, np.int64), np.array([7, 7, 7, 7, 8, 8]), np.array([10, 10, 9, 12, 3, 4]))
    assert way.advances().tolist() == [True, False, False, True, True, True]


@pytest.mark.long
def test_pauses_are_removed_from_a_way() -> None:
    starts, pause = starts_of(TASK), 10
    search = PlanSearch(TASK, seed=0, threads=1)
    way = find_way(search, "1-1", starts)
    assert way is not None
    slow = np.concatenate((np.zeros(pause, np.int64), way.actions))
    assert clears(TASK, starts[0], slow)
    quick = WayAdaptation(search, starts, still_steps=STUCK_STEPS, stopped=lambda: False).without_pauses(slow)
    search.close()
    assert quick.size < slow.size - pause // 2 and clears(TASK, starts[0], quick)


def test_what_leads_to_no_flag_is_no_way() -> None:
    search = PlanSearch(TASK, seed=0, threads=1)
    assert search.way_of(np.full(2 * INTO_GOOMBA, RIGHT_B), starts_of(TASK)) is None
    search.close()


def test_each_plan_is_tried_from_its_own_state() -> None:
    """Beside the first enemy, running is deadly at once; at the stage's start it is not."""
    env = MarioLanes(TASK, 1, restart=False)
    env.reset()
    states = [env.lane_state(0)]
    for _ in range(INTO_GOOMBA // 4):
        assert not env.step(np.array([RIGHT_B])).terminated[0]
    states.append(env.lane_state(0))
    trials = Trials(TASK, 5, threads=1, rom=None)
    tried = trials.run(states, np.full((2, 20), RIGHT_B))
    trials.close()
    assert tried.alive.tolist() == [True, False]
    assert tried.lengths[0] == 20 > tried.lengths[1]
    assert tried.gains[0] > tried.gains[1] > 0


@pytest.mark.long
def test_a_search_leads_from_every_start_to_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_ways(MarioTask(stage="1-1", noop_max=3), at_least=3, monkeypatch=monkeypatch, cache=tmp_path)


@pytest.mark.long
def test_a_search_finds_the_right_turns_of_a_maze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_ways(
        MarioTask(stage="7-4", actions="simple", noop_max=1), at_least=1, monkeypatch=monkeypatch, cache=tmp_path
    )


def assert_ways(task: MarioTask, *, at_least: int, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    search, told = PlanSearch(task, seed=0, threads=2), list[str]()
    search.on_progress = told.append
    way = way_to_flag(task.stage, task, search, rom=None, stopped=lambda: False)
    assert way is not None and told[0] == "looking for a way"
    starts = starts_of(task)
    assert len(starts) == task.starts
    assert sum(clears(task, start, way.actions) for start in starts) >= at_least
    search.close()
    search = PlanSearch(task, seed=0, threads=1)  # with the way in the cache
    again = way_to_flag(task.stage, task, search, rom=None, stopped=lambda: False)
    search.close()
    assert again is not None and again.actions.tolist() == way.actions.tolist()


@pytest.mark.long
def test_a_way_leads_to_the_flag_from_most_starts() -> None:
    """In 6-4 fire bars are elsewhere at each start."""
    task = MarioTask(stage="6-4", noop_max=5)
    starts = starts_of(task)
    search = PlanSearch(task, seed=0, threads=2)
    way = find_way(search, "6-4", starts)
    search.close()
    assert way is not None and sum(clears(task, start, way.actions) for start in starts) >= 5


def test_a_search_stops_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    search = PlanSearch(TASK, seed=0, threads=1)
    assert way_to_flag("8-1", TASK, search, rom=None, stopped=lambda: True) is None
    search.close()
    assert not any(tmp_path.rglob("*.json"))


def test_a_way_is_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = WayCache("1-1", TASK, 0)
    assert cache.load() is None
    cache.save(np.array([1, 2, 0]))
    loaded = cache.load()
    assert loaded is not None and loaded.tolist() == [1, 2, 0]
    for other in (WayCache("1-2", TASK, 0), WayCache("1-1", TASK, 1), WayCache("1-1", MarioTask(noop_max=30), 0)):
        assert other.load() is None


@pytest.mark.parametrize("content", ["", "{}", "[]", "[[1]]", "[7]", "[-1]", '["a"]', "[1.5]", "[1e400]"])
def test_a_damaged_cache_is_ignored(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = WayCache("1-1", TASK, 0)
    cache.save(np.array([0]))
    (file,) = tmp_path.rglob("*.json")
    file.write_text(content)
    assert cache.load() is None


def test_a_continuation_survives_where_running_is_deadly() -> None:
    env = MarioLanes(TASK, 2, restart=False)
    env.reset()
    start, way = env.lane_state(0), running(INTO_GOOMBA)
    search = PlanSearch(TASK, seed=0, threads=1)
    plan = search.continuation(start, way, INTO_GOOMBA, at_least=300)
    search.close()
    assert plan is not None
    dead = np.zeros(2, np.bool_)
    for action in plan[:INTO_GOOMBA]:
        dead |= env.step(np.array([action, RIGHT_B])).terminated
    assert dead.tolist() == [False, True]
    assert env.book[0, 0] > 340  # x
