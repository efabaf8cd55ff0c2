"""`mario-tui distill`: one network learns what several policies play, on the real games."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from engine.extras.distillation.distiller import Distiller
from engine.extras.distillation.teachers import describe_student, load_teachers
from engine.runs import policies
from engine.runs.checkpoints import policy_metadata
from tests.support.program import PROGRAM, Terminal, children_of, json_lines, read_event, rest_of, run_program

pytestmark = pytest.mark.process

QUICK = ("--no-ui", "--game", "snake", "--no-amp", "--parallel-envs", "32", "--batch-size", "64", "--replay-ratio", "4",
         "--learning-rate", "1e-3", "--tau", "0.02", "--policy-tau", "0", "--death-penalty", "1", "--burnin", "1000",
         "--epsilon-steps", "6000", "--seed", "1", "--steps", "14000", "--eval-every", "14000")  # fmt: skip


@pytest.mark.long
def test_a_student_of_two_stages_comes_to_agree_with_its_teachers(one_thread: None) -> None:
    teachers = load_teachers([str(policies.path_of(f"mario-{stage}")) for stage in ("1-1", "1-4")])
    distiller = Distiller(teachers, describe_student(teachers, "small"), seed=0, threads=1)
    try:
        for _ in range(25):
            distiller.step()
        before = distiller.progress()
        for _ in range(135):
            distiller.step()
    finally:
        distiller.close()
    assert distiller.env_steps == 160 * 16
    assert distiller.progress().loss < before.loss / 2
    drawn = [task.replay.sample(256, np.random.default_rng(0)) for task in distiller.tasks]
    obs, labels = (np.concatenate(each) for each in zip(*drawn, strict=True))
    wanted = labels.argmax(1)
    agreement = (distiller.student.q_values(obs).argmax(1).numpy() == wanted).mean()
    assert agreement > np.bincount(wanted).max() / wanted.size + 0.1  # more than always the most frequent action


def test_a_distillation_that_is_stopped_keeps_the_best_student(tmp_path: Path) -> None:
    command = [*PROGRAM, "distill", "snake-12x12", "--into", "one.safetensors", "--eval-every", "320",
               "--eval-episodes", "2", "--steps", "1e9", "--seed", "5", "--json"]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        first = read_event(process, "evaluation")
        for child in children_of(psutil.Process(process.pid)):  # as a service manager does
            child.send_signal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        *_, summary = rest_of(process)
    assert process.returncode == 0
    assert first["best"] and first["env_steps"] == 320 and first["tasks"][0]["task"] == "12x12"
    assert summary["event"] == "summary" and summary["env_steps"] >= 320
    kept = policy_metadata(tmp_path / "one.safetensors")
    assert (kept["board"], kept["seed"], kept["teachers"]) == ("12x12", 5, ["snake-12x12"])
    assert kept["env_steps"] == summary["evaluation"]["env_steps"]
    assert kept["score"] == [0, summary["evaluation"]["mean_return"]]
    assert sorted(path.name for path in tmp_path.glob("*.safetensors*")) == ["one.safetensors"]


@pytest.mark.long
def test_one_network_learns_two_boards_within_a_minute(tmp_path: Path) -> None:
    for board in ("4x4", "5x5"):
        run_program(*QUICK, "--board", board, "--name", f"snake-{board}", cwd=tmp_path)
    arguments = ("--minutes", "0.8", "--eval-every", "10000", "--eval-episodes", "50", "--json")
    done = run_program("distill", "snake-4x4", "snake-5x5", "--into", "both.safetensors", *arguments, cwd=tmp_path)
    *evaluations, summary = json_lines(done.stdout)
    assert [event["event"] for event in evaluations] == ["evaluation"] * len(evaluations)
    said = policy_metadata(tmp_path / "both.safetensors")
    assert (said["board"], said["frame_shape"], summary["network"]) == ("4x4,5x5", [5, 5, 5], "grid")
    played = json.loads(run_program("eval", "both.safetensors", "--episodes", "200", "--json", cwd=tmp_path).stdout)
    small, large = played["tasks"]
    assert (small["task"], small["episodes"], large["task"], large["episodes"]) == ("4x4", 100, "5x5", 100)
    for task in (small, large):  # random actions eat 0.7 fruits
        assert task["mean_score"] > 2.5


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "clears"), [("0", 3), ("1", 0)])
def test_a_student_may_begin_with_a_policy(epsilon: str, clears: int, tmp_path: Path) -> None:
    """It clears the stage before it has learned anything, unless evaluations play at random."""
    begin = ("--network", "small", "--initial-policy", "mario-1-1", "--steps", "80", "--eval-every", "80")
    evaluated = ("--eval-episodes", "3", "--eval-epsilon", epsilon, "--json")
    done = run_program("distill", "mario-1-1", *begin, *evaluated, cwd=tmp_path)
    evaluation, summary = json_lines(done.stdout)
    assert (evaluation["tasks"][0]["clears"], summary["updates"]) == (clears, 0)
    assert policy_metadata(tmp_path / "distilled.safetensors")["evaluation"]["epsilon"] == float(epsilon)


@pytest.mark.long
def test_two_stages_are_distilled_by_the_program(tmp_path: Path) -> None:
    arguments = ("--steps", "900", "--eval-every", "450", "--eval-episodes", "2")
    done = run_program("distill", "mario-1-1", "mario-1-4", *arguments, cwd=tmp_path)
    first, second, *result = done.stdout.splitlines()
    assert first.startswith("464 steps: 0% cleared (1-1 0, 1-4 ") and first.endswith("), best so far")
    assert second.startswith("912 steps: ")
    assert result[0].endswith("distilled.safetensors: mario, network nature")
    assert result[2].startswith("  1-1   0/2 cleared, return ")
    again = run_program("distill", "mario-1-1", cwd=tmp_path, check=2)
    assert again.stderr == "mario-tui: error: --into: distilled.safetensors exists already; --force overwrites it\n"
    evaluated = run_program("eval", "distilled.safetensors", "--episodes", "3", cwd=tmp_path).stdout
    assert "distilled.safetensors: trained on 1-1,1-4, at " in evaluated
    assert "\n  1-1   0/2 cleared" in evaluated and "\n  1-4   " in evaluated


@pytest.mark.long
def test_a_distillation_that_is_stopped_early_does_not_replace_an_earlier_student(tmp_path: Path) -> None:
    into = tmp_path / "one.safetensors"
    for earlier, told in ((b"", "the student as it was"), (b"earlier", "the earlier file was not replaced")):
        terminal = Terminal(
            "distill", "snake-12x12", "--into", into.name, "--force", "--eval-every", "1e9", cwd=tmp_path
        )
        terminal.wait_for("distilling")
        terminal.send("\x03")
        assert terminal.wait() == 0
        assert told in terminal.text()
        assert (into.read_bytes() == earlier) == bool(earlier)
        into.write_bytes(b"earlier")
