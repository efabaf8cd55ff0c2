"""Checkpoints in which one thing was changed and the manifest made anew: refused before the start, or resumed fine."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import UserError
from engine.protocol.messages import Curriculum, Done, Episode, Lanes, Progress
from engine.runs import checkpoints
from engine.runs.checkpoint_state import REPLAY_FILE, check_contents
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.program import json_lines, run_program
from tests.support.resealed import resealed, spoilt
from tests.support.runners import RUNNERS, SNAKE

STEPS, MORE = 400, 80
QUICK = {"burnin": 100, "batch_size": 32, "buffer_size": 2000}
GAMES: dict[str, dict[str, Any]] = {
    "snake": {"game": "snake", "board": "5x5"},
    "tetris": {"game": "tetris", "board": "5x8", "curriculum": True, "prioritized_replay": True},
    "mario": {"game": "mario", "parallel_envs": 2, "learning_rate_schedule": "plateau", "start_states": 0.2},
}
UNKNOWN = {"loss", "q_mean", "mean_return", "last_return", "best_return", "clear_rate"}
"""Figures that are NaN, or -inf for the best of none, before there is anything to report."""
Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The checkpoint of a short run of a game."""
    found: dict[str, Path] = {}

    def make(game: str) -> Path:
        if game not in found:
            found[game] = checkpoint_of(train(tmp_path_factory.mktemp(game), {**QUICK, **GAMES[game]}, STEPS))
        return found[game]

    return make


def copies(checkpoint: Path, folder: Path, every: int = 1, first: int = 0) -> Iterator[tuple[str, Path]]:
    """Spoilt copies of a checkpoint, one at a time."""
    for name, spoil in islice(spoilt(checkpoint), first, None, every):
        copy = Path(shutil.copytree(checkpoint, folder / checkpoint.name))
        spoil(copy)
        resealed(copy)
        yield name, copy
        shutil.rmtree(copy)


def infinite(figures: Any, name: str = "") -> Iterator[str]:
    """Names of figures that nobody can read."""
    if isinstance(figures, float) and not (math.isfinite(figures) or (name in UNKNOWN and not figures > 0)):
        yield name
    elif isinstance(figures, dict):
        for key, value in figures.items():
            yield from infinite(value, key)
    elif isinstance(figures, list):
        for value in figures:
            yield from infinite(value, name)


def check(copy: Path) -> str:
    """`""` if the checkpoint is accepted before the start, else the reason, in one line."""
    try:
        check_contents(copy, checkpoints.read_manifest(copy))
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 1000
        return str(error)
    return ""


def outcome(copy: Path, folder: Path, options: dict[str, Any]) -> str:
    """`refused`, or `resumed` after a run from the checkpoint that ends well."""
    if check(copy):
        return "refused"
    try:
        reports = train(folder, {**QUICK, **options}, STEPS + MORE, copy)
    except UserError:
        return "refused"
    assert isinstance(reports[-1], Done)
    assert not {
        *infinite([msgspec.to_builtins(each) for each in of_kind((Progress, Lanes, Curriculum, Episode), reports)])
    }
    return "resumed"


def outcomes(game: str, made: Made, folder: Path, every: int = 1) -> Counter[str]:
    counts = Counter[str]()
    for name, copy in copies(made(game), folder, every):
        try:
            counts[outcome(copy, folder / "run", GAMES[game])] += 1
        except Exception as error:
            raise AssertionError(name) from error
        shutil.rmtree(folder / "run", ignore_errors=True)
    return counts


def test_what_was_changed_is_refused_or_harmless(made: Made, tmp_path: Path) -> None:
    counts = outcomes("snake", made, tmp_path, every=83)
    assert counts["refused"] > 3 * counts["resumed"]


@pytest.mark.long
@pytest.mark.parametrize("game", GAMES)
def test_whatever_was_changed_is_refused_or_harmless(game: str, made: Made, tmp_path: Path) -> None:
    counts = outcomes(game, made, tmp_path)
    print(game, counts)  # for the note
    assert counts["refused"] > 3 * counts["resumed"] > 0


@pytest.mark.parametrize(
    "game",
    ["snake", *(pytest.param(game, marks=pytest.mark.long) for game in ("tetris", "mario"))],
)
def test_an_untouched_checkpoint_is_accepted(game: str, made: Made) -> None:
    assert check(made(game)) == ""


def test_a_batch_that_was_drawn_in_advance_is_accepted(tmp_path: Path) -> None:
    options = {**QUICK, **GAMES["snake"], "replay_device": "files"}
    checkpoint = checkpoint_of(train(tmp_path, options, STEPS))
    assert "sampler.ahead.scales" in load_file(checkpoint / REPLAY_FILE)
    assert check(checkpoint) == ""


def test_a_schedule_may_have_lowered_the_least_learning_rate(made: Made, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made("snake"), tmp_path / "copy"))
    path = copy / "state.json"
    state = json.loads(path.read_text())
    state["extra"]["tuned"]["learning_rate"] = 3e-9
    path.write_text(json.dumps(state))
    resealed(copy)
    assert check(copy) == ""


@pytest.mark.parametrize("prioritized", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_replay_in_files_is_resumed_from_a_checkpoint(prioritized: bool, tmp_path: Path) -> None:
    """It has drawn a batch in advance."""
    options = {**QUICK, **GAMES["snake"], "replay_device": "files", "checkpoint_replay": True}
    options["prioritized_replay"] = prioritized
    checkpoint = checkpoint_of(train(tmp_path / "first", options, STEPS))
    assert outcome(checkpoint, tmp_path / "second", options) == "resumed"
    path = checkpoint / "replay.safetensors"
    arrays = load_file(path)
    arrays["sampler.ahead.lanes"][0] = -1
    save_file(arrays, path)
    resealed(checkpoint)
    assert outcome(checkpoint, tmp_path / "third", options) == "refused"


def test_a_run_may_have_learned_for_weeks(made: Made, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made("snake"), tmp_path / "copy"))
    path = copy / "optimizer.safetensors"
    save_file({n: np.full_like(t, 2**24) if n.endswith(".step") else t for n, t in load_file(path).items()}, path)
    resealed(copy)
    assert check(copy) == ""


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.process
def test_checkpoints_of_several_processes_are_checked_as_well(runner: str, tmp_path: Path) -> None:
    options = (*SNAKE, *RUNNERS[runner], "--steps", "4000", "--eval-every", "0", "--parallel-envs", "8")
    lines = json_lines(run_program("--no-ui", "--log-format", "json", *options, cwd=tmp_path).stdout)
    checkpoint = Path(lines[-1]["checkpoint"])
    assert check(checkpoint) == ""
    refused = Counter(bool(check(copy)) for _, copy in copies(checkpoint, tmp_path / "copies"))
    assert refused[True] > 3 * refused[False] > 0
    for name, copy in copies(checkpoint, tmp_path / "copies", every=150, first=7):
        resume(name, copy, tmp_path, "--steps", "5000")


def resume(name: str, copy: Path, folder: Path, *options: str) -> int:
    """Resume from a checkpoint in a program of its own; returns its status."""
    done = run_program("--no-ui", "--log-format", "json", "--resume", str(copy), *options, cwd=folder, check=None)
    assert done.returncode in (0, 2), name
    assert "Traceback" not in done.stderr, name
    assert done.returncode == 0 or len(done.stderr.strip().splitlines()) == 1, name
    for log in folder.glob("*/*/run.log"):
        assert "Traceback" not in log.read_text(), name
    return done.returncode


@pytest.mark.long
@pytest.mark.parametrize("game", GAMES)
@pytest.mark.process
def test_programs_end_with_status_0_or_2(game: str, made: Made, tmp_path: Path) -> None:
    steps = ("--steps", str(STEPS + MORE))
    statuses = Counter(resume(name, copy, tmp_path, *steps) for name, copy in copies(made(game), tmp_path, every=70))
    assert statuses.keys() <= {0, 2} and statuses[2]
    untouched = Path(shutil.copytree(made(game), tmp_path / "untouched"))
    assert resume("untouched", untouched, tmp_path, *steps) == 0


@pytest.mark.process
def test_a_program_refuses_one_in_one_line(made: Made, tmp_path: Path) -> None:
    copy, name = Path(shutil.copytree(made("snake"), tmp_path / "copy")), "extra.counters.best_return: NaN"
    dict(spoilt(copy))[name](copy)
    resealed(copy)
    assert resume(name, copy, tmp_path, "--steps", str(STEPS + MORE)) == 2
