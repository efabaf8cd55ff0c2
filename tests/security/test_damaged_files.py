"""Two hundred damaged files of each kind that the program reads: each is read, or refused in one line, with status 2.

No traceback, no hang, no crash, and no memory beyond 2 GiB. `tests.support.damage` makes them of a file that the
program wrote; `tests.support.damaged_reader` reads them in a process of its own, through the program's commands.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.config.reading import make_config
from engine.console.cartridge import installed_mario
from engine.games.gym.spaces import CARTPOLE
from engine.games.mario.task import MarioTask
from engine.protocol.messages import Hello, Progress
from engine.runs import checkpoints, policies
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from engine.runs.run import Run, make_annotation, write_annotation
from engine.runs.sweep import Member, SweepPlan
from mario_tui.extras.sweeps.folder import create_sweep
from tests.support import damage
from tests.support.app import RECORDING, recorded_run
from tests.support.damage import JSON, MESSAGES, TENSORS, TOML, Form
from tests.support.damaged_reader import LONGEST, SHOWN
from tests.support.in_process import checkpoint_of, train
from tests.support.policy_files import shipped
from tests.support.program import PATIENCE_S, run_program
from tests.support.real_checkpoint import add_checkpoint
from tests.support.sinks import tensorboard

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it is below a folder, how its contents are parsed, and what makes the folder."""

    make: Callable[[Path], Path]
    form: Form | str | None


def _event_file(folder: Path) -> Path:
    """As a host writes it."""
    writer = tensorboard(folder)
    progress = next(event for event in read_recording(RECORDING) if isinstance(event, Progress))
    for step in range(20):
        writer.progress(msgspec.structs.replace(progress, env_steps=step))
        if step == 10:
            writer.restart(8)
    writer.close()
    (path,) = folder.glob("*tfevents*")
    return path.rename(folder / "x.tfevents")


def _cartridge(folder: Path) -> Path:
    return Path(shutil.copy(installed_mario(), folder / "game.nes"))


def _settings(folder: Path) -> Path:
    path = folder / "mario-tui" / "settings.toml"
    path.parent.mkdir()
    lines = ['theme = "castle"', "game_fps = 5", 'graphics = "blocks"', "notifications = false", "[keys]"]
    path.write_text("\n".join([*lines, '"dashboard.save" = "S"', '"home.new" = "a,f2"']))
    return path


def _theme(folder: Path) -> Path:
    path = folder / "mario-tui" / "themes" / "own.toml"
    path.parent.mkdir(parents=True)
    text = (Path(__file__).parents[2] / "themes" / "castle.toml").read_text()
    path.write_text(text.replace('name = "castle"', 'name = "own"'))
    return path


def _options(folder: Path) -> Path:
    path = folder / "options.toml"
    path.write_text(make_config({"game": "tetris", "runner": "apex"}).to_toml())
    return path


SMALL = {"game": "snake", "board": "5x5", "buffer_size": 1000, "burnin": 100, "parallel_envs": 2, "amp": False}


def _run(folder: Path) -> Run:
    (folder / "state").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        run = create_run(make_config({**SMALL, "run_dir": str(folder / "runs")}), "demo")
    record = run.record()
    record.state, record.mean_return, record.checkpoint = "finished", 5.5, "step-000000000100"
    run.write_record(record)
    write_annotation(run, make_annotation("one two", "a note"))
    _event_file(run.path)
    add_checkpoint(run, 100)
    return run


def _card(folder: Path) -> Path:
    source = policies.folder() / "mario-1-1.json"
    (folder / "mario-1-1.safetensors").touch()  # only its path is asked for
    return Path(shutil.copy(source, folder))


def _sweep(folder: Path) -> Path:
    plan = SweepPlan({"game": "snake", "board": "5x5"}, 1, None, tuple(Member({"n_step": n}, 1) for n in (1, 3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        sweep = create_sweep(folder / "runs", "demo", plan)
        for event in ("begun", "failed", "moved", "refused"):
            sweep.note(event, sweep.run(0), reason="why")
    return sweep.path


def _spaces(folder: Path) -> Path:
    (path := folder / "spaces.json").write_text(CARTPOLE)
    return path


def _history(folder: Path) -> Path:
    run = recorded_run(folder / "runs")
    (run.path / "config.toml").write_text(make_config({}).to_toml())
    events = read_recording(RECORDING)
    assert isinstance(events[0], Hello)
    return run.history_path


def _state(name: str, content: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "mario-tui" / name
        path.parent.mkdir()
        path.write_text(json.dumps(content))
        return path

    return make


def _way(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        cache = pytest.importorskip("engine.extras.distillation.mario.ways").WayCache("1-1", MarioTask(), 0)
        cache.save(np.arange(200) % 5)
    return Path(cache._file)


def _snake(folder: Path) -> Path:
    """A policy of a small board, whose episodes are short."""
    options = {"game": "snake", "board": "4x4", "burnin": 100, "buffer_size": 400, "paths": False}
    trained = checkpoint_of(train(folder.parent / "trained", options, 120)) / checkpoints.POLICY_FILE
    shutil.copy(trained, folder / "teacher.safetensors")
    return Path(shutil.copy(trained, folder / "policy.safetensors"))


def _mario(folder: Path) -> Path:
    source = shipped("mario-1-1")
    return Path(shutil.copy(source, folder / "policy.safetensors"))


KINDS: dict[str, Kind] = {
    "event file": Kind(_event_file, "events"),
    "cartridge": Kind(_cartridge, "cartridge"),
    "settings": Kind(_settings, TOML),
    "theme": Kind(_theme, TOML),
    "--config": Kind(_options, TOML),
    "record": Kind(lambda folder: _run(folder).record_path, JSON),
    "options of a run": Kind(lambda folder: _run(folder).path / "config.toml", TOML),
    "annotation": Kind(lambda folder: _run(folder).path / "annotation.json", JSON),
    "registry": Kind(
        lambda folder: next((_run(folder).path, folder / "state" / "mario-tui" / "runs")[1].iterdir()), None
    ),
    "recording": Kind(_history, MESSAGES),
    "layout": Kind(
        _state("dashboard.json", {"hidden": ["log"], "smoothing": 0.6, "axis": "steps", "turned": True}), JSON
    ),
    "colours": Kind(_state("colours.json", {"/a": 0, "/b": 1}), JSON),
    "card": Kind(_card, JSON),
    "plan": Kind(lambda folder: _sweep(folder) / "sweep.json", JSON),
    "journal": Kind(lambda folder: _sweep(folder) / "journal.jsonl", None),
    "spaces": Kind(_spaces, JSON),
    "way": Kind(_way, JSON),
    "policy of Snake": Kind(_snake, TENSORS),
    "policy of Mario": Kind(_mario, TENSORS),
    "teacher": Kind(_snake, TENSORS),
}


class Reader:
    """The process that reads the files. It is started again when it has crashed or hung."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._process: subprocess.Popen[str] | None = None
        self._usual: dict[str, int] = {}  # peak of its memory by kind, with undamaged files
        self.growth = 0
        """Bytes that a damaged file has taken beyond that, at most."""

    def read(self, kind: str, folder: Path) -> list[dict[str, Any]]:
        """How the commands ended in a folder."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.damaged_reader"], cwd=self._cwd, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(self._cwd / "stderr").open("w"),
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )  # fmt: skip
            self._usual.clear()
        if kind not in self._usual:
            outcomes, self._usual[kind] = self._ask(kind, self._cwd / kind / "undamaged")
            assert not any(outcome["status"] for outcome in outcomes), outcomes
        outcomes, peak = self._ask(kind, folder)
        self.growth = max(self.growth, peak - max(self._usual.values(), default=peak))
        return outcomes

    def _ask(self, kind: str, folder: Path) -> tuple[list[dict[str, Any]], int]:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, str(folder)]) + "\n")
        self._process.stdin.flush()
        ready = select.select([self._process.stdout], [], [], PATIENCE_S)[0]
        answer = self._process.stdout.readline() if ready else ""
        if answer:
            outcomes, peak = json.loads(answer)
            return outcomes, peak
        self.close()
        fault = f"{'crashed' if ready else 'hung'}: {(self._cwd / 'stderr').read_text()[-LONGEST:]}"
        return [{"command": "any", "status": -1, "said": "", "out": "", "fault": fault}], 0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def what_is_wrong(outcome: dict[str, Any]) -> str:
    """Why an outcome is none that a user should see; empty if it is fine."""
    lines = outcome["said"].splitlines()
    if outcome["fault"] or "Traceback" in outcome["said"]:
        return outcome["fault"] or outcome["said"]
    is_part = outcome["status"] == 1 and any(line.endswith("; exported up to there") for line in lines)
    if outcome["status"] not in (0, 2) and not is_part:
        return f"status {outcome['status']}: {outcome['said']}"
    if outcome["status"] == 2 and len(lines) != 1:
        return f"{len(lines)} lines: {outcome['said']}"
    if any(len(line) > LONGEST for line in lines):
        return f"lines of {max(map(len, lines))} characters: {outcome['said'][:LONGEST]}"
    return ""


def damaged(kind: str, count: int, folder: Path, *, shown: int) -> Iterator[tuple[str, Path]]:
    """Folders with a damaged file each, and what its damage is; each is removed before the next one. The screens show
    one of `shown` files; 0: none."""
    good = folder / "good"
    good.mkdir(parents=True)
    path = KINDS[kind].make(good)
    content = path.read_bytes()
    shutil.copytree(good, folder / "undamaged")
    for number, (what, put) in enumerate(damage.versions(content, KINDS[kind].form, count, len(kind))):
        copy = folder / f"{number}{SHOWN if shown and number % shown == 0 else ''}"
        shutil.copytree(good, copy)
        spoilt = copy / path.relative_to(good)
        spoilt.unlink()
        put(spoilt)
        yield f"{number}: {what}", copy
        shutil.rmtree(copy)


def check(kinds: Iterable[str], count: int, folder: Path, show: Callable[[str], object], *, shown: int = 5) -> None:
    """Read damaged files of these kinds, and show how many were refused."""
    reader, faults = Reader(folder), list[str]()
    try:
        for kind in kinds:
            found = Counter[str]()
            for what, copy in damaged(kind, count, folder / kind, shown=shown):
                outcomes = reader.read(kind, copy)
                wrong = [
                    f"{kind} {what}, {each['command']}: {why}" for each in outcomes if (why := what_is_wrong(each))
                ]
                faults += wrong
                statuses = {outcome["status"] for outcome in outcomes}
                refused = "refused" if 2 in statuses else "read in part" if 1 in statuses else "read"
                found["failed" if wrong else refused] += 1
            counts = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
            show(f"{kind}: {counts}; {reader.growth / 2**20:.0f} MiB more memory than undamaged files")
    finally:
        reader.close()
    assert not faults, f"{len(faults)} faults\n" + "\n\n".join(faults[:200])


QUICK = (
    "event file",
    "settings",
    "theme",
    "--config",
    "record",
    "annotation",
    "recording",
    "layout",
    "colours",
    "card",
    "plan",
    "journal",
    "spaces",
)
"""Kinds for which neither torch nor a console is needed."""


def test_ten_damaged_files_of_kinds_that_are_read_soon(tmp_path: Path) -> None:
    check(QUICK, 10, tmp_path, print, shown=0)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_damaged_files(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")

    check([kind], 200, tmp_path, show)


SAMPLES = {
    "event file": ["export", "x.tfevents", "--output", "out.csv"],
    "--config": ["--eval-only", "--config", "options.toml"],
    "record": ["runs", "--run-dir", "runs"],
    "cartridge": ["eval", "mario-1-1", "--episodes", "1", "--rom", "game.nes"],
    "policy of Snake": ["eval", "policy.safetensors", "--episodes", "1"],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", SAMPLES)
def test_processes_of_their_own_end_the_same_way(kind: str, tmp_path: Path) -> None:
    faults = []
    for what, folder in damaged(kind, 8, tmp_path / "files", shown=0):
        done = run_program(*SAMPLES[kind], cwd=folder, check=None)
        outcome = {"status": done.returncode, "said": done.stderr, "fault": ""}
        if why := what_is_wrong(outcome):
            faults.append(f"{what}: {why}")
    assert not faults, "\n\n".join(faults)
