"""Runs of environments are resumed, or it is said which option keeps them from that."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from engine.runs.checkpoint_state import REPLAY_FILE
from engine.runs.checkpoints import POLICY_FILE
from tests.support.gym_envs import CORRIDOR, FAULTY
from tests.support.program import json_lines, refusal, run_program

pytestmark = pytest.mark.process

SHORT = ("--no-ui", "--log-format", "json", "--burnin", "200", "--replay-ratio", "1", "--eval-every", "0")


def test_a_resumed_run_goes_on_normalizing_and_its_frames_are_raw(tmp_path: Path) -> None:
    more = ("--game", "gym:MountainCar-v0", "--normalize", "--checkpoint-replay", "--parallel-envs", "4")
    done = run_program(*SHORT, *more, "--random-hold", "1", "--steps", "400", cwd=tmp_path)
    checkpoint = Path(json_lines(done.stdout)[-1]["checkpoint"])
    before = load_file(checkpoint / POLICY_FILE)
    assert before["count"] == 400 and -0.7 < before["mean"][0] < -0.4
    frames = load_file(checkpoint / REPLAY_FILE)["storage.frames"]
    assert frames[..., 0].min() > -0.8 and frames[..., 0].max() < -0.2  # places of a car that has hardly moved
    resumed = run_program(*SHORT, "--resume", "latest", "--steps", "600", cwd=tmp_path)
    after = load_file(Path(json_lines(resumed.stdout)[-1]["checkpoint"]) / POLICY_FILE)
    assert after["count"] == 600 and 0.8 < after["deviation"][0] / before["deviation"][0] < 1.25


@pytest.mark.long
def test_large_numbers_are_stored_with_the_replay_and_new_episodes_begin(tmp_path: Path) -> None:
    scaled = ("--game", FAULTY, "--env-args", '{"scale": 5e7}', "--checkpoint-replay", "--steps", "400")
    run_program(*SHORT, *scaled, cwd=tmp_path)
    resumed = run_program(*SHORT, "--resume", "latest", "--steps", "600", cwd=tmp_path)
    assert "starting new episodes: games of this environment can't be stored" in resumed.stderr
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 600


def test_an_option_with_which_the_network_does_not_fit_is_named_with_both_values(tmp_path: Path) -> None:
    flat, normalized = '{"flat": true}', "--normalize"
    run_program(*SHORT, "--game", CORRIDOR, "--env-args", flat, "--steps", "300", cwd=tmp_path)
    resume = ("--no-ui", "--resume", "latest", "--steps", "600")
    assert refusal(*resume, "--env-args", "{}", cwd=tmp_path) == (
        """mario-tui: error: --env-args must be {"flat": true}, as in the checkpoint, got '{}', with which the """
        "shape of frames is (2, 3, 8), not (48,)"
    )
    assert refusal(*resume, normalized, cwd=tmp_path) == (
        "mario-tui: error: --normalize must be off, as in the checkpoint, got 'on'; for another one start a new run"
    )
    same = '{"flat": true, "start": 0}'  # a value that changes no shape is taken
    resumed = run_program(*SHORT, *resume[1:], "--env-args", same, cwd=tmp_path)
    assert json_lines(resumed.stdout)[-1]["env_steps"] >= 600
