"""Runs whose episodes begin on a way to the flag that a search has found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.extras.distillation.mario.ways import begin_on_ways, states_along
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.start_states import place_of
from engine.games.mario.task import MarioTask
from engine.runners.actor_learner import games_fit
from engine.runs.checkpoint_state import ARRAYS_FILE
from engine.runs.run import CONFIG_FILE, read_config
from tests.support.games.mario import INTO_GOOMBA, RIGHT_B
from tests.support.program import json_lines, run_program

TASK = MarioTask(noop_max=0)
TO_GOOMBA = np.full(INTO_GOOMBA // TASK.frame_skip, RIGHT_B)


def test_states_along_a_way_are_the_first_of_each_place_where_mario_stands() -> None:
    states = states_along(TO_GOOMBA, TASK, noops=0)
    assert sorted(states) == list(range(min(states), min(states) + len(states))) and len(states) > 2
    env, first = MarioLanes(TASK, 1, draws=False), dict[int, bytes]()
    env.reset()
    for action in TO_GOOMBA:
        env.step(np.array([action]))
        if rules.stands(env.emulator.ram)[0]:
            first.setdefault(int(place_of(env.emulator.ram)[0]), env.emulator.save(0))
    assert states == first
    env.close()


def test_states_along_a_way_in_which_mario_dies_of_no_ops_are_left_out() -> None:
    """The first enemy walks into a Mario who waits before it."""
    patient = states_along(TO_GOOMBA, TASK, noops=400)
    assert patient.keys() < states_along(TO_GOOMBA, TASK, noops=0).keys()
    assert patient


@pytest.mark.parametrize("stops_after", [0, 1, pytest.param(None, marks=pytest.mark.long)])
def test_a_run_on_two_stages_knows_the_ways_of_both_or_none(
    stops_after: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = make_config({"game": "mario", "stage": "1-1,1-3", "guide": 0.5, "noop_max": 8})
    env, said = make_lanes(config, 4, threads=1, seed=1), list[str]()
    assert isinstance(env, MarioLanes)
    begin_on_ways(config, env, stopped=lambda: sum("found" in line for line in said) == stops_after, log=said.append)
    assert env.has_ways is (stops_after is None)
    assert sum("found" in line for line in said) == (2 if stops_after is None else stops_after)
    if env.has_ways:
        env.reset(np.ones(4, np.bool_))
        stages = {int(env.stages[lane]) for _ in range(20) for lane in np.flatnonzero(began_on_a_way(env)).tolist()}
        assert stages == {0, 2}
    env.close()


def began_on_a_way(env: MarioLanes) -> NDArray[np.bool_]:
    """Begin an episode in each lane. Returns whether it began on a way [lanes]."""
    env.reset()
    return env.book[:, rules.START] >= len(env.task.stages)


@pytest.mark.long
@pytest.mark.process
def test_a_run_searches_its_ways_and_evaluates_without_them(tmp_path: Path) -> None:
    options = ("--guide", "0.5", "--start-states", "0.2", "--random-phase", "--action-noise", "0.1", "--noop-max", "1",
               "--parallel-envs", "8", "--steps", "1200", "--burnin", "1000", "--eval-every", "600",
               "--eval-episodes", "2")  # fmt: skip
    done = run_program("--no-ui", "--log-format", "json", *options, cwd=tmp_path)
    assert "searching a way to the flag of 1-1 for --guide" in done.stderr
    assert "1-1: found a way of" in done.stderr
    events = json_lines(done.stdout)
    assert [event["episodes"] for event in events if event["event"] == "evaluation"] == [2, 2]
    assert events[-1]["env_steps"] == 1200
    again = run_program("--no-ui", "--log-format", "json", "--resume", "latest", "--steps", "1600", cwd=tmp_path)
    assert "searching" not in again.stderr  # the checkpoint has the states
    saved = Path(json_lines(again.stdout)[-1]["checkpoint"])
    config = read_config(saved / CONFIG_FILE)
    assert games_fit(config, saved)
    games = saved / ARRAYS_FILE
    save_file(load_file(games) | {"guide.until": np.zeros(8, np.int64)}, games)
    assert not games_fit(config, saved)  # an earlier version led these by actions
