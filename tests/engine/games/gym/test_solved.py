"""What an environment says of success: the return that solves it, and whether an episode has reached its goal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from tests.support.gym_envs import SLOW
from tests.support.program import json_lines, run_program

pytestmark = pytest.mark.process


def test_an_episode_that_ends_in_success_counts_as_cleared() -> None:
    config = make_config({"game": SLOW})
    lanes = make_lanes(config, 2, threads=1, seed=0)
    lanes.reset()
    steps = [lanes.step(np.array([0, 1])) for _ in range(10)]
    assert [step.success.tolist() for step in steps[-2:]] == [[False, False], [False, True]]
    assert config.outcome.goal is not None and make_config({"game": "gym"}).outcome.goal is None


def test_a_run_says_when_it_has_solved_its_environment(tmp_path: Path) -> None:
    def told(*options: str) -> list[dict[str, Any]]:
        learned = ("--steps", "400", "--burnin", "50", "--eval-every", "200", "--eval-episodes", "2",
                   "--learning-rate-schedule", "plateau")  # fmt: skip
        done = run_program("--no-ui", "--log-format", "json", *options, *learned, cwd=tmp_path)
        return [line for line in json_lines(done.stdout) if line["event"] in ("evaluation", "change")]

    solved, change, again = told("--game", SLOW)  # by any policy
    assert solved["solved"] and again["solved"] and solved["clears"] is not None
    assert (change["event"], change["name"]) == ("change", "learning_rate")
    (log,) = tmp_path.glob("checkpoints/*/run.log")
    assert log.read_text().count("solved after 208 environment steps: a mean return of") == 1
    unsolved = told("--game", "gym:FrozenLake-v1", "--max-episode-steps", "20")
    assert [line.get("solved") for line in unsolved] == [False, False]
