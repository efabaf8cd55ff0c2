"""A run of an environment whose observations are large numbers is resumed with its replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gym_envs import FAULTY
from tests.support.program import json_lines, run_program

SHORT = ("--no-ui", "--log-format", "json", "--burnin", "200", "--replay-ratio", "1", "--eval-every", "0")


@pytest.mark.long
def test_large_numbers_are_stored_with_the_replay_and_new_episodes_begin(tmp_path: Path) -> None:
    scaled = ("--game", FAULTY, "--env-args", '{"scale": 5e7}', "--checkpoint-replay", "--steps", "400")
    run_program(*SHORT, *scaled, cwd=tmp_path)
    resumed = run_program(*SHORT, "--resume", "latest", "--steps", "600", cwd=tmp_path)
    assert "starting new episodes: games of this environment can't be stored" in resumed.stderr
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 600
