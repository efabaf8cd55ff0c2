"""A run that was interrupted and resumed with its replay equals one that was not, bit for bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.runs.checkpoints import POLICY_FILE
from engine.runtime.threads import available_cores
from tests.support.program import json_lines, run_program

pytestmark = pytest.mark.process

SHORT = ("--burnin", "200", "--batch-size", "128", "--sync-every", "7", "--seed", "5",
         "--replay-ratio", "4", "--checkpoint-replay", "--buffer-size", "2000")  # fmt: skip
GAMES = {  # with --no-amp, because what is faster is measured anew
    "mario": ("--parallel-envs", "8", "--epsilon-steps", "2000", "--start-states", "0.5", "--no-amp"),
    "mario on a way": (
        "--parallel-envs",
        "8",
        "--epsilon-steps",
        "2000",
        "--guide",
        "0.5",
        "--action-noise",
        "0.1",
        "--noop-max",
        "2",
        "--no-amp",
    ),
    "mario on nes-py": (
        "--parallel-envs",
        "2",
        "--emulator",
        "nes-py",
        "--epsilon-steps",
        "300",
        "--burnin",
        "60",
        "--replay-ratio",
        "10",
        "--no-amp",
    ),
    "tetris": (
        "--game",
        "tetris",
        "--board",
        "5x8",
        "--pieces",
        "bag",
        "--parallel-envs",
        "8",
        "--no-amp",
        "--double-q",
    ),
    "snake": (
        "--game",
        "snake",
        "--board",
        "5x5",
        "--parallel-envs",
        "8",
        "--no-amp",
        "--replay-device",
        "device",
        "--learning-rate-schedule",
        "plateau",
        "--eval-every",
        "80",
        "--eval-episodes",
        "2",
    ),
    "snake with every part": (
        "--game",
        "snake",
        "--board",
        "5x5",
        "--parallel-envs",
        "8",
        "--no-amp",
        "--quantiles",
        "4",
        "--noisy",
        "--munchausen",
        "0.9",
    ),
    "mario with every part": (
        "--parallel-envs",
        "4",
        "--epsilon-steps",
        "2000",
        "--no-amp",
        "--network",
        "impala-wide",
        "--quantiles",
        "4",
        "--noisy",
        "--munchausen",
        "0.9",
        "--burnin",
        "100",
        "--batch-size",
        "8",
        "--replay-ratio",
        "0.5",
    ),
    "snake in files": ("--game", "snake", "--board", "5x5", "--parallel-envs", "8", "--no-amp", "--use-mmap-buffer"),
}


def checkpoint(folder: Path, *options: str) -> Path:
    """Train in `folder` and return the last checkpoint."""
    done = run_program("--no-ui", "--log-format", "json", *options, cwd=folder)
    return Path(json_lines(done.stdout)[-1]["checkpoint"])


@pytest.mark.parametrize(
    "game",
    [name if name == "snake with every part" else pytest.param(name, marks=pytest.mark.long) for name in GAMES],
)
def test_interrupted_and_resumed_equals_uninterrupted(game: str, tmp_path: Path) -> None:
    assert_resumes_exactly(tmp_path, game)


@pytest.mark.gpu
def test_interrupted_and_resumed_equals_uninterrupted_on_a_gpu(tmp_path: Path) -> None:
    assert_resumes_exactly(tmp_path, "snake", "--device", "cuda")


@pytest.mark.long
@pytest.mark.skipif(available_cores() < 2, reason="needs two cores")
@pytest.mark.parametrize("game", ["tetris", "snake with every part"])
def test_a_second_core_changes_no_bit(game: str, tmp_path: Path) -> None:
    """With it, another thread computes targets. A batch of this size is not split."""
    options = ("--batch-size", "64", "--threads", "1")
    assert_resumes_exactly(tmp_path, game, *options, in_parts=("--threads", "2"))


def assert_resumes_exactly(folder: Path, game: str, *options: str, in_parts: tuple[str, ...] = ()) -> None:
    """in_parts: further options of the run that is interrupted."""
    (folder / "whole").mkdir()
    (folder / "parts").mkdir()
    steps = ("200", "400") if "nes-py" in game else ("480", "960")
    options = (*SHORT, *(() if game == "snake" else ("--eval-every", "0")), *GAMES[game], *options)
    whole = checkpoint(folder / "whole", *options, "--steps", steps[1])
    half = checkpoint(folder / "parts", *options, *in_parts, "--steps", steps[0])
    parts = checkpoint(folder / "parts", "--resume", str(half), "--steps", steps[1])
    files = sorted(path.name for path in whole.glob("*.safetensors"))
    assert {POLICY_FILE, "target.safetensors", "optimizer.safetensors", "replay.safetensors"} < set(files)
    assert sorted(path.name for path in parts.glob("*.safetensors")) == files
    for name in files:
        ours, theirs = load_file(parts / name), load_file(whole / name)
        assert ours.keys() == theirs.keys()
        for key, array in theirs.items():
            assert np.array_equal(ours[key], array), f"{name}: {key}"
    one, other = (json.loads((folder / "state.json").read_text()) for folder in (parts, whole))
    assert one["updates"] == other["updates"] > 20
    for key in ("credit", "beta", "random", "torch_random", "device_random", "choices"):
        assert one[key] == other[key], key
    assert one["extra"]["play"] == other["extra"]["play"]
    assert one["extra"]["tuned"] == other["extra"]["tuned"]
    assert ("learning_rate" in one["extra"]["tuned"]) == ("plateau" in GAMES[game])  # it was cut
    assert one["extra"]["records"] == other["extra"]["records"]


@pytest.mark.long
def test_a_replay_in_a_file_is_there_again_on_resume(tmp_path: Path) -> None:
    options = ("--parallel-envs", "8", "--burnin", "400", "--batch-size", "64", "--use-mmap-buffer",
               "--buffer-size", "4000",
               "--no-ui", "--log-format", "json", "--eval-every", "0")  # fmt: skip
    first = json_lines(run_program(*options, "--steps", "800", cwd=tmp_path).stdout)
    (run,) = (tmp_path / "checkpoints").iterdir()
    assert (run / "replay" / "frames.bin").stat().st_size == 4000 * 50 * 60
    resume = ("--no-ui", "--log-format", "json", "--resume", "latest")
    again = json_lines(run_program(*resume, "--steps", "880", cwd=tmp_path).stdout)
    progress = [event for event in again if event["event"] == "progress"]
    assert progress[0]["burnin_left"] == 0 and progress[0]["replay_size"] >= 800
    updates = [
        json.loads(Path(events[-1]["checkpoint"], "state.json").read_text())["updates"] for events in (first, again)
    ]
    assert updates[1] - updates[0] == 80 * 4 // 64  # from the first step on
    done = run_program(*resume, "--parallel-envs", "4", "--steps", "920", cwd=tmp_path)
    assert "contains a replay with other lanes" in done.stderr
    progress = [event for event in json_lines(done.stdout) if event["event"] == "progress"]
    assert 0 < progress[-1]["replay_size"] <= 40


def test_a_checkpoint_of_an_earlier_version_resumes(tmp_path: Path) -> None:
    """Written by the version before games were packages, with its replay; its weights were set to 0, so it is small."""
    checkpoints = Path(__file__).parents[2] / "support" / "checkpoints"
    shutil.unpack_archive(checkpoints / "snake-3x3-before-the-contract.tar.xz", tmp_path)
    before = tmp_path / "step-000000000200"
    done = run_program("--no-ui", "--log-format", "json", "--resume", str(before), "--steps", "400", cwd=tmp_path)
    after = Path(json_lines(done.stdout)[-1]["checkpoint"])
    assert after.name == "step-000000000400"
    replays = [load_file(folder / "replay.safetensors") for folder in (before, after)]
    written = [replay["storage.written"].sum() for replay in replays]
    assert written[1] - written[0] >= 200  # it was restored, and the games went on
