"""Checkpoints of headless runs, and what is resumed from them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog

from engine.host.client import HostClient
from engine.protocol.commands import Save
from engine.protocol.messages import Point
from engine.runs import checkpoints
from engine.runs.lookup import find_source
from tests.support.policy_files import weights
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    FinishedRun,
    headless,
    json_lines,
    next_event,
    private_disk,
    read_event,
    refusal,
    rest_of,
    run_program,
    runner_of,
    the_run,
)

pytestmark = pytest.mark.process


@pytest.mark.long
def test_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    options = ("--steps", "400", "--burnin", "100", "--batch-size", "32", "--no-amp")  # the precision is measured
    learned = []
    with contextlib.ExitStack() as runs:
        started = []
        for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
            (tmp_path / name).mkdir()
            started.append(runs.enter_context(headless(*options, "--seed", seed, cwd=tmp_path / name)))
        for process in started:
            out, _ = process.communicate(timeout=PATIENCE_S)
            learned.append(weights(Path(json_lines(out)[-1]["checkpoint"])))
    assert all(np.array_equal(learned[0][name], learned[1][name]) for name in learned[0])
    assert any(not np.array_equal(learned[0][name], learned[2][name]) for name in learned[0])


def test_resume_goes_on_from_where_it_was(finished_run: FinishedRun, tmp_path: Path) -> None:
    done = run_program(
        "--no-ui", "--log-format", "json", "--resume", str(finished_run.checkpoint), "--steps", "2500", cwd=tmp_path
    )
    events = json_lines(done.stdout)
    summary, before = events[-1], finished_run.events[-1]
    assert min(event["env_steps"] for event in events if event["event"] == "progress") >= 2016
    assert summary["run"] == finished_run.run.name
    assert summary["env_steps"] == 2528  # the first whole batch at or after 2,500, from 2,016
    assert summary["updates"] > before["updates"]
    assert summary["episodes"] >= before["episodes"]
    assert summary["wall_s"] > before["wall_s"]
    beta = [event["beta"] for event in events if event["event"] == "progress"]
    assert beta[0] >= 0.4 + before["updates"] * 1e-5 - 1e-9
    restarts = [
        event.step
        for path in finished_run.run.path.glob("*tfevents*")
        for event in LegacyEventFileLoader(str(path)).Load()
        if event.session_log.status == SessionLog.START
    ]
    assert {1, 2017} <= set(restarts)  # TensorBoard drops what is there at these steps and later


@pytest.mark.long
def test_periodic_checkpoints_rotate(tmp_path: Path) -> None:
    run_program("--no-ui", "--parallel-envs", "2", "--steps", "500", "--save-every", "100", "--keep", "2", cwd=tmp_path)
    steps = [checkpoints.verify(path).env_steps for path in checkpoints.committed(the_run(tmp_path))]
    assert steps == [400, 500]


def test_a_full_disk_is_told_and_only_the_missing_final_checkpoint_is_a_failure(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        runner = runner_of(run)
        for full in (runner, psutil.Process(run.record().pid)):
            full.rlimit(psutil.RLIMIT_FSIZE, (1000, 1000))  # as on a full disk, its writes fail from now on
        with HostClient(run) as client:
            client.send(Save())
            warnings = ""
            while not (
                "no more metrics are written for TensorBoard" in warnings and "the policy was not saved" in warnings
            ):
                warnings += read_event(process, "warning")["text"]
        with HostClient(run) as client:
            next_event(client, Point)  # the rest of the host goes on
        process.send_signal(signal.SIGTERM)
        events = rest_of(process)
        assert process.returncode == 1
        assert process.stderr is not None
        assert "the final checkpoint could not be written" in process.stderr.read()
    (warning,) = (event["text"] for event in events if event["event"] == "warning")
    assert re.search(": no checkpoint was written at [0-9,]+ steps", warning)
    assert [path for path in run.path.rglob("*") if ".partial" in path.name or "policy" in path.name] == []


@pytest.mark.long
@pytest.mark.parametrize(("room", "expected"), [("60m", [2048, 2432]), ("40m", [448])])
def test_on_a_full_disk_the_oldest_checkpoint_gives_way_to_the_newest(
    room: str, expected: list[int], tmp_path: Path
) -> None:
    """A checkpoint has 24 MB."""
    disk, seen = tmp_path / "disk", tmp_path / "seen"
    disk.mkdir()
    options = ("--game", "snake", "--steps", "2400", "--burnin", "500", "--save-every", "400", "--keep", "3")
    train = [*PROGRAM, "--no-ui", "--log-format", "plain", *options]
    watched = ["sh", "-c", f'"$@"; status=$?; ls -d checkpoints/*/step-* > {seen}; exit $status', "sh", *train]
    done = subprocess.run([*private_disk(disk, room), *watched], capture_output=True, text=True)
    kept = [int(line.rpartition("-")[2]) for line in seen.read_text().splitlines()]
    assert kept == expected, done.stdout + done.stderr
    assert done.returncode == (0 if len(kept) > 1 else 1)
    gave_way = re.findall("the disk is full: step-0*([0-9]+) was removed to make room", done.stdout)
    assert gave_way == ([] if room == "40m" else ["448", "832", "1216", "1600"])


def test_resume_of_a_finished_number_of_steps_is_refused(finished_run: FinishedRun) -> None:
    done = run_program("--no-ui", "--resume", str(finished_run.checkpoint), "--steps", "10",
                       cwd=finished_run.folder, check=2)  # fmt: skip
    assert re.search(r"--steps must be above 2,\d+, the checkpoint's environment steps, got 10", done.stderr)
    line = refusal("--no-ui", "--resume", str(finished_run.checkpoint), cwd=finished_run.folder)
    assert re.search(r"--steps must be above 2,\d+, .* has done all of its 2,\d+; add --steps N$", line)
    policy = str(finished_run.checkpoint / "policy.safetensors")
    line = refusal("--no-ui", "--resume", policy, cwd=finished_run.folder)
    assert line.endswith(f"with the weights of a policy: --initial-policy {policy}")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("--game", "snake"),
            "--game must be mario, as in the checkpoint, got 'snake'; for another one start a new run",
        ),
        (
            ("--actions", "complex"),
            "--actions must be right-only, as in the checkpoint, got 'complex'; for another one start a new run",
        ),
        (("--episodes", "1"), "--episodes must be above "),
        (("--optimizer", "rmsprop"), "--optimizer must be adam, as in the checkpoint, got 'rmsprop'"),
        (("--observation", "84x84"), "--observation must be 50x60-red, as in the checkpoint, got '84x84'"),
    ],
)
def test_a_resume_for_another_network_is_refused(
    options: tuple[str, ...], complaint: str, finished_run: FinishedRun
) -> None:
    config = (finished_run.run.path / "config.toml").read_bytes()
    done = run_program("--no-ui", "--resume", "latest", "--steps", "4000", *options, cwd=finished_run.folder, check=2)
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (finished_run.run.path / "config.toml").read_bytes() == config


@pytest.mark.long
def test_an_automatic_batch_size_is_told_and_kept_on_resume(tmp_path: Path) -> None:
    common = ("--no-ui", "--log-format", "json", "--game", "snake", "--board", "4x4", "--eval-every", "0")
    first = run_program(*common, "--batch-size", "auto", "--burnin", "40", "--steps", "100", cwd=tmp_path)
    checkpoint = json_lines(first.stdout)[-1]["checkpoint"]
    found = json.loads((Path(checkpoint) / "state.json").read_text("utf-8"))["choices"]["batch_size"]
    assert f"batch size {found}:" in first.stderr + first.stdout
    run_program("--no-ui", "--resume", "latest", "--steps", "200", cwd=tmp_path)
    newest = find_source("latest", str(tmp_path / "checkpoints")).path
    assert json.loads((newest / "state.json").read_text("utf-8"))["choices"]["batch_size"] == found


def test_a_running_run_is_not_resumed_twice(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--save-every", "80", cwd=tmp_path) as process:
        read_event(process, "checkpoint")
        done = run_program("--no-ui", "--resume", "latest", cwd=tmp_path, check=2)
        assert re.search(r"is running; use: mario-tui attach mario-1-1-", done.stderr)


def test_a_damaged_checkpoint_is_refused_and_an_older_one_is_found(tmp_path: Path) -> None:
    run_program("--no-ui", "--parallel-envs", "2", "--steps", "200", "--save-every", "100", cwd=tmp_path)
    run = the_run(tmp_path)
    older, newer = checkpoints.committed(run)
    with (newer / checkpoints.POLICY_FILE).open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"oops")
    done = run_program("--no-ui", "--resume", str(newer), "--steps", "600", cwd=tmp_path, check=2)
    assert "policy.safetensors: damaged" in done.stderr
    assert checkpoints.newest(run) == older
