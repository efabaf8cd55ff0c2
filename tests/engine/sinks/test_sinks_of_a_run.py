"""Sinks of a real run: JSON lines in its folder, and those of another package, good ones and bad ones."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from engine.protocol.messages import Episode, Evaluation
from engine.runs.run import Run
from engine.sinks import dispatcher, process
from engine.sinks.dispatcher import Dispatcher
from engine.sinks.files import METRICS_FILE, JSONLines
from engine.sinks.process import ForeignSink
from engine.sinks.sink import EPISODE_POINTS
from tests.support.program import (
    headless,
    json_lines,
    nobody_is_left,
    read_event,
    rest_of,
    run_program,
    the_run,
    wait_until,
)
from tests.support.sinks import begin, install

SOURCE = """
import json, os, subprocess, sys, threading
from engine.sinks import Sink

with open("imported.txt", "a") as file:
    file.write(f"{os.getpid()}\\n")

class Good(Sink):
    def begin(self, run):
        self.file = open("good.txt", "a")
        self.note("begin", run.options["learning_rate"])
        print("\\x1b[31mprinted by a sink")
    def restart(self, env_steps):
        self.note("restart", env_steps)
    def episode(self, episode):
        self.note("episode", episode.episode_return)
    def progress(self, progress):
        self.note("progress", progress.env_steps)
    def evaluation(self, evaluation):
        self.note("evaluation", evaluation.env_steps)
    def end(self, end):
        self.note("end", end.summary.env_steps)
    def close(self):
        self.note("close", sorted({name.split(".")[0] for name in sys.modules} & {"torch", "textual"}))
        self.file.close()
    def note(self, *what):
        self.file.write(json.dumps(what) + "\\n")

class Raising(Sink):
    def episode(self, episode):
        raise RuntimeError("in the middle")

class Exiting(Sink):
    def begin(self, run):
        os._exit(7)

class Lingering(Sink):
    def begin(self, run):
        child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        with open("child.txt", "w") as file:
            print(child.pid, os.getpgrp(), file=file)
        threading.Event().wait()
"""
OPTIONS = ("--game", "snake", "--board", "5x5", "--steps", "600", "--burnin", "100", "--eval-every", "300",
           "--eval-episodes", "2")  # fmt: skip


EPISODE = Episode(
    actor=0, lane=0, env_steps=1, episode=1, episode_return=0, length=1, success=False, epsilon=0, results=(0.0,)
)


def evaluation(env_steps: int) -> Evaluation:
    return Evaluation(env_steps=env_steps, episodes=1, clears=0, mean_return=0, best=True, seconds=1)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packages are installed."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def written_by_a_sink(run: Run) -> list[Any]:
    """The calls that `Good` noted: name and value."""
    return [json.loads(line) for line in (run.path / "good.txt").read_text().splitlines()]


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def warnings(log: str) -> list[str]:
    return re.findall("WARNING host: (.*)", log)


@pytest.mark.process
def test_a_run_writes_to_its_sinks_and_outlives_those_that_fail(package: Path, tmp_path: Path) -> None:
    install(package, SOURCE, good="Good", raising="Raising", exiting="Exiting")
    broken = tmp_path / "packages" / "broken-1.0.dist-info"
    broken.mkdir()
    (package / "broken_sink.py").write_text("raise ImportError('a library is missing')")
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[mario_tui.sinks]\nbroken = broken_sink:Sink\n")
    with headless(*OPTIONS, "--sinks", "json-lines,good,raising,exiting,broken", cwd=tmp_path) as process:
        events = rest_of(process)
    assert process.returncode == 0
    run, summary = the_run(tmp_path), events[-1]

    metrics = json_lines((run.path / METRICS_FILE).read_text())
    first, second, last = metrics[0], metrics[1], metrics[-1]
    assert first["event"] == "begin" and first["options"] == run.config().options() and first["run"] == run.name
    assert second == {"event": "restart", "env_steps": 0}
    assert last == summary
    for kind in ("episode", "evaluation"):
        assert [line for line in metrics if line["event"] == kind] == [e for e in events if e["event"] == kind] != []
    shown = next(event for event in events if event["event"] == "progress")
    progress = [line for line in metrics if line["event"] == "progress"]
    assert progress[-1]["env_steps"] == summary["env_steps"] and progress[-1].keys() == shown.keys()

    importers = (run.path / "imported.txt").read_text().split()
    assert len(set(importers)) == 3 and str(run.record().pid) not in importers

    noted = written_by_a_sink(run)
    assert noted[:2] == [["begin", run.config().learning_rate], ["restart", 0]]
    assert noted[-2:] == [["end", summary["env_steps"]], ["close", []]]
    for kind, value in (("episode", "episode_return"), ("evaluation", "env_steps")):
        assert [what for name, what in noted if name == kind] == [e[value] for e in events if e["event"] == kind]

    log = run.log_path.read_text("utf-8")
    place = r"\(\w+\.py:\d+\)"
    assert sorted(re.sub(place, "(PLACE)", line) for line in warnings(log) if "metrics" in line) == [
        "no more metrics are written for broken: ImportError: a library is missing (PLACE)",
        "no more metrics are written for exiting: its process has ended (exit status 7)",
        "no more metrics are written for raising: RuntimeError: in the middle (PLACE)",
    ]
    assert log.count('  |     raise RuntimeError("in the middle")') == 1  # its traceback, set off
    assert "\\x1b[31mprinted by a sink\n" in log
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.process
def test_a_resumed_run_appends_its_lines_and_cuts_off_a_partial_one(tmp_path: Path) -> None:
    options = ("--no-ui", "--log-format", "json", "--game", "snake", "--board", "5x5", "--parallel-envs", "2")
    run_program(*options, "--burnin", "100", "--steps", "200", "--sinks", "json-lines", cwd=tmp_path)
    path = the_run(tmp_path).path / METRICS_FILE
    before = path.read_text()
    path.write_text(before + '{"event":"prog')  # as a killed host leaves it
    run_program("--no-ui", "--resume", "latest", "--steps", "400", cwd=tmp_path)
    after = path.read_text()
    assert after.startswith(before)
    lines = json_lines(after[len(before) :])
    assert [line["event"] for line in lines[:2]] == ["begin", "restart"]
    assert lines[1]["env_steps"] == 200 and lines[-1]["event"] == "summary" and lines[-1]["env_steps"] == 400
    assert len(list(path.parent.glob("*tfevents*"))) == 2


@pytest.mark.process
def test_an_unknown_sink_is_one_line_and_status_2(package: Path, tmp_path: Path) -> None:
    install(package, SOURCE, good="Good")
    done = run_program("--no-ui", *OPTIONS, "--sinks", "good,upload", cwd=tmp_path, check=2)
    assert done.stderr == (
        "mario-tui: error: --sinks must be none, or names among json-lines, mlflow, mlflow:policy, trackio, wandb, "
        "wandb:policy, good, separated by commas; got 'upload'\n"
    )
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.process
def test_a_sink_that_never_reads_is_dropped_from_told_once_and_killed(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(package, SOURCE, lingering="Lingering")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "END_S", 0.5)
    monkeypatch.setattr("engine.sinks.sink.MOST", 100)
    said: list[Any] = []
    sink = ForeignSink("lingering")
    sinks = Dispatcher({"lingering": sink}, log=lambda *line: said.append(line))
    sinks.begin(begin(tmp_path))
    while not sink.dropped:  # the pipe is full
        sinks.put(EPISODE)
    before = sink.dropped
    sinks.put(evaluation(1))  # there are few of them, so they wait
    assert sink.dropped == before
    sinks.look(retry=False)
    sinks.look(retry=False)
    file = tmp_path / "child.txt"
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "a child of the sink")
    child, group = map(int, file.read_text().split())
    assert group != os.getpgrp()  # a signal to the sink's group does not reach the host
    sinks.close()
    wait_until(lambda: has_ended(child), "the end of the sink's child")
    assert said == [
        ("warning", "lingering is too slow: some metrics are not written for it"),
        ("info", f"lingering was too slow: {before:,} messages were not written for it"),
        ("warning", "no more metrics are written for lingering: it did not end within 0.5 s of the run's end, and was "
         "killed"),
    ]  # fmt: skip


@pytest.mark.process
def test_a_host_that_is_killed_leaves_no_sink_behind(package: Path, tmp_path: Path) -> None:
    install(package, SOURCE, good="Good")
    with headless(*OPTIONS, "--steps", "100000000", "--sinks", "good", cwd=tmp_path) as process:
        read_event(process, "evaluation")
        run = the_run(tmp_path)
        psutil.Process(run.record().pid).kill()
        rest_of(process)
        nobody_is_left(tmp_path)
    assert written_by_a_sink(run)[-1][0] == "close"  # in order, without an end


def test_a_full_disk_costs_a_line_and_the_file_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_RETRY_EVERY_S", 0.0)
    said: list[Any] = []
    sinks = Dispatcher({"json-lines": JSONLines(tmp_path)}, log=lambda *line: said.append(line))
    path = tmp_path / METRICS_FILE
    path.symlink_to(tmp_path / "elsewhere")
    sinks.begin(begin(tmp_path))
    path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    sinks.look(retry=True)
    sinks.put(evaluation(1))
    wait_until(lambda: '"env_steps":1,' in path.read_text(), "the line")
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))  # as on a full disk, only a part is written
    try:
        while len(said) < 3:
            sinks.put(evaluation(2))
        assert path.stat().st_size == size + 10
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    sinks.look(retry=True)
    sinks.put(evaluation(3))
    sinks.close()
    events = [(line["event"], line.get("env_steps")) for line in json_lines(path.read_text())]
    assert events == [("begin", None), ("evaluation", 1), ("begin", None), ("evaluation", 3)]
    assert said == [
        ("warning", "no more metrics are written for json-lines: is a link"),
        ("info", "metrics are written for json-lines again"),
        ("warning", "no more metrics are written for json-lines: File too large"),
        ("info", "metrics are written for json-lines again"),
    ]


@pytest.mark.parametrize("length", [10, 2**16 + 10, 2**21])
def test_a_line_that_was_cut_off_takes_no_other_with_it(length: int, tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_bytes(b'{"event":"begin"}\n{"event":"' + b"x" * length)
    sink = JSONLines(tmp_path)
    sink.begin(begin(tmp_path))
    sink.close()
    assert [line["event"] for line in json_lines((tmp_path / METRICS_FILE).read_text())] == ["begin", "begin"]


def test_a_last_line_without_end_is_nothing_of_ours(tmp_path: Path) -> None:
    with (tmp_path / METRICS_FILE).open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="its last line has more than 16,777,216 bytes"):
        JSONLines(tmp_path).begin(begin(tmp_path))


def test_episodes_get_fewer_and_fewer_lines(tmp_path: Path) -> None:
    sink = JSONLines(tmp_path)
    sink.begin(begin(tmp_path))
    for number in range(1, 7 * EPISODE_POINTS + 1):
        sink.take(msgspec.structs.replace(EPISODE, episode=number))
    sink.close()
    _, *lines = json_lines((tmp_path / METRICS_FILE).read_text())
    assert len(lines) == 3 * EPISODE_POINTS
    steps = Counter(later["episode"] - line["episode"] for line, later in itertools.pairwise(lines))
    assert steps == {1: EPISODE_POINTS - 1, 2: EPISODE_POINTS, 4: EPISODE_POINTS}
