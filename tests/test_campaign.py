"""Tests of `bench.campaign`: what its table says, and that a campaign goes on wherever it was ended."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.campaign import RECIPES, held_out
from engine.config.command_line import given
from engine.config.reading import make_config
from engine.runs import policies
from engine.runs.checkpoints import committed
from engine.runs.lookup import fitting_policy, options_of_policy
from engine.runs.marks import is_run
from engine.runs.run import Run
from mario_tui.commands.train import training_parser
from tests.support.program import PATIENCE_S, wait_until

STAGES = ("7-3", "5-3")
STEPS = 3000


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("stage", RECIPES)
def test_a_stage_trains_from_a_policy_that_fits_without_the_starts_that_are_held_out(stage: str, device: str) -> None:
    recipe = RECIPES[stage]
    arguments = ["--initial-policy", recipe.policy, *recipe.arguments(stage, device)]
    asked = given(training_parser("mario").parse_args(arguments))
    config = make_config(options_of_policy(asked) | asked)
    fitting_policy(config)
    assert config.task == stage
    assert max(config.value("noop_max"), config.eval_conditions.noop_max) < held_out(stage)[0]
    assert config.parallel_envs == (128 if device == "cuda" else 32)


def campaign(out: Path, *options: str) -> subprocess.Popen[str]:
    small = ("--parallel-envs", "8", "--burnin", "100", "--batch-size", "32", "--buffer-size", "4000",
             "--eval-every", "1000", "--eval-episodes", "2", "--save-every", "500", "--steps", str(STEPS))  # fmt: skip
    command = [sys.executable, "-m", "bench.campaign", *options, "--out", str(out), "--device", "cpu", "--", *small]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.process
def test_a_campaign_that_was_interrupted_and_killed_goes_on_until_its_stages_are_done(tmp_path: Path) -> None:
    options = (*STAGES, "--minutes", "60", "--episodes", "2")
    run = Run(tmp_path / "runs" / STAGES[0])
    with campaign(tmp_path, *options) as process:
        wait_until(lambda: committed(run), "a checkpoint", by=process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and f"| {STAGES[0]} | mario-2-3 |" in out, errors
    assert not run.is_alive()
    begun, steps = run.record().created_at, run.record().env_steps
    assert steps > 0

    with campaign(tmp_path, *options) as process:
        wait_until(lambda: any(is_run(each) and Run(each).is_alive() for each in run.path.parent.iterdir()), "a run")
        other = subprocess.run([sys.executable, "-m", "bench.campaign", "--out", str(tmp_path)], capture_output=True)
        process.kill()
    assert other.returncode == 2 and b"is in use by another campaign" in other.stderr

    with campaign(tmp_path, *options) as process:
        _, errors = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, errors
    with (tmp_path / "campaign.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["stage"] for row in rows if row["known"]] == [*STAGES], errors
    assert all(row["end"] == "goal" or int(row["steps"]) >= STEPS for row in rows)
    assert all(0 <= int(row[column]) <= 2 for row in rows for column in ("known", "held_out"))
    assert (run.record().created_at, run.record().env_steps >= steps) == (begun, True)
    assert [card.name for card in policies.cards(tmp_path / "policies")] == sorted(f"mario-{stage}" for stage in STAGES)
    assert not any(Run(tmp_path / "runs" / stage).is_alive() for stage in STAGES)
