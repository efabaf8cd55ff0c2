"""The trainer on Snake and Tetris: it learns, on the host and on the device that it learns on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.games.snake.rules import SnakeLanes
from engine.runs.checkpoints import POLICY_FILE
from tests.support.program import json_lines, run_program

QUICK = ("--no-amp", "--parallel-envs", "32", "--batch-size", "64", "--replay-ratio", "4", "--learning-rate", "1e-3",
         "--burnin", "1000", "--epsilon-steps", "6000", "--tau", "0.02", "--policy-tau", "0",
         "--seed", "1")  # fmt: skip


@pytest.mark.long  # that Snake is learned is seen in every test run, with Ape-X
@pytest.mark.parametrize(
    ("game", "options", "chance", "reached"),
    [("snake", ("--board", "5x5", "--death-penalty", "1"), 0.7, 3.0), ("tetris", ("--board", "5x8"), 1.1, 1.7)],
)
@pytest.mark.process
def test_small_boards_are_learned(
    game: str, options: tuple[str, ...], chance: float, reached: float, tmp_path: Path
) -> None:
    """`chance` is more than random actions reach, `reached` less than the policy of 14,000 environment steps."""
    done = run_program(
        "--no-ui", "--log-format", "json", "--game", game, *options, *QUICK,
        "--steps", "14000", "--eval-every", "14000", cwd=tmp_path,
    )  # fmt: skip
    events = json_lines(done.stdout)
    run = Path(events[-1]["checkpoint"]).parent
    results = {}
    for epsilon in ("0", "1"):
        arguments = ("eval", str(run / "best.safetensors"), "--episodes", "200", "--epsilon", epsilon, "--json")
        results[epsilon] = json.loads(run_program(*arguments, cwd=tmp_path).stdout)
    assert results["0"]["game"] == game
    assert results["0"]["mean_score_low"] > reached
    assert results["1"]["mean_score_high"] < chance
    (evaluation,) = [event for event in events if event["event"] == "evaluation"]
    assert evaluation["best"] and evaluation["mean_score"] > reached


@pytest.mark.long
@pytest.mark.parametrize("game", ["snake", pytest.param("tetris", marks=pytest.mark.long)])
@pytest.mark.process
def test_frames_that_stay_on_the_device_train_the_same_agent(game: str, tmp_path: Path) -> None:
    """Boards, replay and learning in tensors give the bits that arrays give; the device is the CPU here.

    With prioritized replay, whose random numbers are the host's everywhere.
    """
    weights = []
    for where in ("host", "device"):
        done = run_program(
            "--no-ui", "--log-format", "json", "--game", game, *QUICK, "--prioritized-replay", "--replay-device", where,
            "--eval-every", "0", "--buffer-size", "4000", "--steps", "1600", cwd=tmp_path,
        )  # fmt: skip
        weights.append(load_file(Path(json_lines(done.stdout)[-1]["checkpoint"]) / POLICY_FILE))
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        assert np.allclose(array, weights[1][name], atol=1e-5), name


def test_games_go_on_on_another_kind_of_device() -> None:
    """Whose random numbers have a state of 16 bytes, as CUDA's; there they begin anew."""
    ours, theirs = SnakeLanes(4, seed=0), SnakeLanes(4, seed=1)
    for lanes in (ours, theirs):
        lanes.reset()
    theirs.load_state({**ours.state(), "random": torch.zeros(16, dtype=torch.uint8)})
    still = torch.zeros(4, dtype=torch.int64)
    assert torch.equal(theirs.step(still).final_frames, ours.step(still).final_frames)
