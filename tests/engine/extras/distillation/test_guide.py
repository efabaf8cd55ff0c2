"""Runs whose episodes begin on a way to the flag that a search has found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.extras.distillation.mario.ways import states_along
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.start_states import place_of
from engine.games.mario.task import MarioTask
from tests.support.games.mario import INTO_GOOMBA, RIGHT_B
from tests.support.program import json_lines, run_program


def test_states_along_a_way_are_the_first_of_each_place_where_mario_stands() -> None:
    task = MarioTask(noop_max=0)
    actions = np.full(INTO_GOOMBA // task.frame_skip, RIGHT_B)
    states = states_along(actions, task)
    assert len(states) > 2
    env = MarioLanes(task, 1)
    for place, state in states.items():
        env.emulator.load(0, state)
        assert place_of(env.emulator.ram)[0] == place and rules.stands(env.emulator.ram)[0]
    assert sorted(states) == list(range(min(states), min(states) + len(states)))  # no place is left out
    env.close()


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
