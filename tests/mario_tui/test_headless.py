"""`mario-tui --no-ui` as scripts use it: JSON lines, resume, signals, failures, exit statuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog

from engine.emulators.cartridge import installed_mario
from engine.host.client import HostClient, HostGone
from engine.protocol.commands import Checkpoint, Save, Stop
from engine.protocol.framing import pack
from engine.protocol.messages import Finished, Hello, Log, Point, Progress, Saved
from engine.runs import checkpoints, policies
from engine.runs.recording import read_recording
from mario_tui.headless import _connections
from tests.support.app import start
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    FinishedRun,
    Terminal,
    headless,
    json_lines,
    kill_hosts,
    members_of,
    next_event,
    nobody_is_left,
    private_disk,
    read_event,
    refusal,
    rest_of,
    run_program,
    runner_of,
    the_run,
    wait_until,
)


def weights(checkpoint: Path) -> dict[str, np.ndarray]:
    return load_file(checkpoint / checkpoints.POLICY_FILE)


def test_last_line_is_the_summary_and_weights_have_learned(finished_run: FinishedRun) -> None:
    summary = finished_run.events[-1]
    assert summary["event"] == "summary"
    assert summary["env_steps"] == 2016  # the first whole batch of 32 lanes at or after 2,000
    assert summary["frames"] >= 4 * 2016 * 0.9
    assert summary["updates"] > 20  # (2,000 - 500) steps x 4 samples / batches of 256, less what came last
    assert summary["episodes"] == sum(event["event"] == "episode" for event in finished_run.events) > 0
    online, target = (load_file(finished_run.checkpoint / f"{name}.safetensors") for name in ("online", "target"))
    assert any(not np.array_equal(online[name], target[name]) for name in online)  # which follows slowly
    policy = weights(finished_run.checkpoint)
    assert any(not np.array_equal(policy[name], target[name]) for name in online)  # an average of its own
    distance = {name: [np.abs(net[name] - online[name]).sum() for net in (target, policy)] for name in online}
    assert sum(near for near, _ in distance.values()) < sum(far for _, far in distance.values())  # and a slower one
    assert all(np.isfinite(tensor).all() for tensor in online.values())


def test_json_lines_hold_every_promised_kind(finished_run: FinishedRun) -> None:
    kinds = {event["event"] for event in finished_run.events}
    assert kinds == {"progress", "episode", "checkpoint", "summary"}
    progress = [event for event in finished_run.events if event["event"] == "progress"]
    steps = [event["env_steps"] for event in progress]
    assert steps == sorted(steps)
    assert not any("replay" in event for event in progress)  # histograms are for the dashboard


def test_the_log_says_which_default_followed_and_which_option_has_no_effect(tmp_path: Path) -> None:
    options = ("--game", "snake", "--board", "5x5", "--parallel-envs", "2", "--steps", "200", "--burnin", "100")
    done = run_program("--no-ui", *options, "--sync-every", "50", "--alpha", "0.5", cwd=tmp_path)
    told = ("--tau follows --sync-every 50: 1 instead of 0.005", "--alpha has no effect without --prioritized-replay")
    log = the_run(tmp_path).log_path.read_text("utf-8")
    for line in told:
        assert done.stdout.count(line) == log.count(line) == 1
    assert the_run(tmp_path).config().tau == 1


@pytest.mark.parametrize("runner", ["single", pytest.param("apex", marks=pytest.mark.long)])
def test_a_run_that_ends_before_its_burn_in_warns_once(runner: str, tmp_path: Path) -> None:
    options = ("--game", "tetris", "--board", "5x5", "--runner", runner, "--episodes", "5", "--burnin", "90000")
    with headless(*options, cwd=tmp_path) as process:
        events = rest_of(process)
    (warning,) = (event["text"] for event in events if event["event"] == "warning" and "learned" in event["text"])
    assert warning.startswith("nothing was learned: the run ended after ")
    assert warning.endswith("before its first update; lower --burnin (90,000) or raise --episodes (5)")
    assert events[-1]["updates"] == 0


NO_HOME = ("unshare", "--user", "--map-user=12345", "env", "-u", "HOME", *(
    word for kind in ("STATE", "CONFIG", "CACHE") for word in ("-u", f"XDG_{kind}_HOME")
))  # fmt: skip
"""Runs a command as a user who has no home folder and no entry in the password database."""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_user_without_a_home_folder_can_train_and_list_the_run(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run([*NO_HOME, "true"]).returncode:
        pytest.skip("this system lets nobody become another user")
    (tmp_path / "tmp").mkdir()  # for compiled code

    def run(*arguments: str) -> str:
        command = [*NO_HOME, "env", f"TMPDIR={tmp_path / 'tmp'}", *PROGRAM, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    options = ("--game", "snake", "--board", "5x5", "--parallel-envs", "2", "--steps", "200", "--burnin", "64")
    assert "done (200 environment steps are done)" in run("--no-ui", *options)
    (record,) = json.loads(run("runs", "--json"))
    assert record["state"] == "finished"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
@pytest.mark.parametrize("runner", [pytest.param("single", marks=pytest.mark.long), "parallel"])
def test_threads_bounds_all_processes_of_a_run_together(runner: str, tmp_path: Path) -> None:
    options = ("--game", "snake", "--board", "5x5", "--runner", runner, "--threads", "1")
    with headless(*options, cwd=tmp_path) as process:
        read_event(process, "progress")
        run = the_run(tmp_path)
        processes = [runner_of(run), *members_of(run)]
        used = {core for each in processes for core in each.cpu_affinity()}
        threads = {len(os.sched_getaffinity(thread.id)) for each in processes for thread in each.threads()}
        process.send_signal(signal.SIGINT)
        rest_of(process)
    assert (len(used), threads) == (1, {1})
    assert len(processes) == (1 if runner == "single" else 2)


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


def test_tensorboard_shows_the_run(finished_run: FinishedRun) -> None:
    accumulator = EventAccumulator(str(finished_run.run.path))
    accumulator.Reload()
    tags = set(accumulator.Tags()["scalars"])
    assert {
        "losses/td_loss", "losses/q_values", "replay/size", "replay/beta", "charts/epsilon", "charts/episodic_return",
        "charts/episodic_length", "charts/env_steps_per_s", "charts/frames_per_s", "charts/updates_per_s",
    } <= tags  # fmt: skip
    ended_at = finished_run.events[-1]["env_steps"]
    assert ended_at in [point.step for point in accumulator.Scalars("losses/td_loss")]  # however short the run is
    episodes = [event for event in finished_run.events if event["event"] == "episode"]
    shown = accumulator.Scalars("charts/episodic_return")
    assert [round(point.value) for point in shown][: len(episodes)] == [e["episode_return"] for e in episodes]


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_checkpoints_and_ends_in_order(signum: signal.Signals, tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        process.send_signal(signum)
        summary = rest_of(process)[-1]
        assert process.returncode == 0
    assert summary["reason"] == f"received {signum.name}"
    run = the_run(tmp_path)
    newest = checkpoints.newest(run)
    assert newest is not None
    assert str(newest) == summary["checkpoint"]
    assert checkpoints.verify(newest).env_steps == summary["env_steps"]
    assert run.record().state == "finished"
    nobody_is_left(tmp_path)


def test_stop_requests_from_all_sides_keep_the_last_checkpoint(tmp_path: Path) -> None:
    """A service manager signals every process of a run, and several clients may stop it."""
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        host, runner = psutil.Process(run.record().pid), runner_of(run)
        runner.suspend()  # until all have asked
        with HostClient(run) as client, socket.socket(socket.AF_UNIX) as other:
            other.connect(run.record().socket)
            other.sendall(pack(Stop(reason="stopped from the dashboard")) + pack(Stop()) + b"\xff\xff\xff\xff")
            next_event(client, Log, lambda log: "invalid command" in log.text)  # the host has read those before it
            for _ in range(2):
                for stopped in (host, process, runner):
                    stopped.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            runner.resume()
            next_event(client, Finished)
        summary = rest_of(process)[-1]
        assert process.returncode == 0, process.stderr and process.stderr.read()
    assert summary["reason"] == "stopped from the dashboard"
    assert checkpoints.verify(Path(summary["checkpoint"])).env_steps == summary["env_steps"]


FAST = ("--game", "snake", "--board", "4x4", "--parallel-envs", "64", "--burnin", "1000000", "--steps", "100000000",
        "--buffer-size", "1000000", "--save-every", "100000000", "--eval-every", "0", "--restarts", "0")  # fmt: skip
"""Options of a run whose episodes come in by the thousand."""


@pytest.mark.long
def test_a_reader_that_stalls_is_told_what_is_missing(tmp_path: Path) -> None:
    with headless(*FAST, cwd=tmp_path) as process:
        first = read_event(process, "episode")["episode"]
        with HostClient(the_run(tmp_path)) as client:
            begun = next_event(client, Progress).episodes
            next_event(client, Progress, lambda progress: progress.episodes > begun + 15_000)  # nobody reads them
            client.send(Checkpoint())
            saved = next_event(client, Saved)
        gap = read_event(process, "gap")
        assert gap["missing"]["episode"] > 1000 and set(gap["missing"]) == {"episode"}
        read_event(process, "checkpoint", path=saved.path)
        shown = read_event(process, "episode")["episode"]  # and on it goes
        assert shown > first + gap["missing"]["episode"]
        process.send_signal(signal.SIGTERM)
        *_, summary = rest_of(process)
        assert (summary["event"], process.returncode) == ("summary", 0)


@pytest.mark.long
def test_a_reader_that_stalled_is_told_the_end_of_the_run(tmp_path: Path) -> None:
    with headless(*FAST, cwd=tmp_path) as process:
        read_event(process, "episode")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            begun = next_event(client, Progress).episodes
            next_event(client, Progress, lambda progress: progress.episodes > begun + 15_000)
        host = psutil.Process(run.record().pid)
        runner_of(run).kill()
        wait_until(lambda: host.status() == psutil.STATUS_ZOMBIE, "the host's end")
        events = rest_of(process)
        assert process.returncode == 1
        assert process.stderr is not None
        assert "failed: the runner process crashed (killed by SIGKILL)" in process.stderr.read()
    counts = Counter[str](event["event"] for event in events)
    assert (counts["gap"], counts["failed"]) == (1, 1)
    assert events[-1]["reason"] == "the runner process crashed (killed by SIGKILL)"


def test_a_headless_run_connects_again_to_a_host_that_dropped_it(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000)
    connections = _connections(host)
    with next(connections) as first:
        first._socket.send(b"\xff\xff\xff\xff")  # no command
        with pytest.raises(HostGone):
            while True:
                first.receive()
    with next(connections) as second:
        assert second.hello.pid == first.hello.pid
        second.send(Stop())
    host.process.wait(PATIENCE_S)
    assert list(connections) == []


@pytest.mark.long
def test_hangup_is_ignored_and_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        first = read_event(process, "progress", state="running")
        process.send_signal(signal.SIGHUP)
        later = read_event(process, "progress", state="running")
        assert later["env_steps"] >= first["env_steps"]
        runner_of(the_run(tmp_path)).suspend()  # it can't answer the first request
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopping: received SIGINT" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    assert "stopped at once" in err
    nobody_is_left(tmp_path)


@pytest.mark.parametrize("signalled", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_reader_that_leaves_stops_the_run_in_order(signalled: bool, tmp_path: Path) -> None:
    """`| tee` dies of the same Ctrl-C; `| head` just leaves. Neither may cost the last checkpoint."""
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        assert process.stdout is not None
        if signalled:
            process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        run = the_run(tmp_path)
        record, newest = run.record(), checkpoints.newest(run)
    assert record.state == "finished"
    assert newest is not None
    assert checkpoints.verify(newest).env_steps == record.env_steps


def test_a_killed_runner_is_a_failure_with_reason_and_log(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--restarts", "0", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        runner_of(the_run(tmp_path)).kill()
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    last = json_lines(out)[-1]
    assert (last["event"], last["reason"]) == ("failed", "the runner process crashed (killed by SIGKILL)")
    assert re.search(r"failed: the runner process crashed \(killed by SIGKILL\); log: .*run\.log", err)
    assert the_run(tmp_path).record().state == "failed"
    nobody_is_left(tmp_path)


def test_a_killed_host_leaves_no_process_and_a_lost_run(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        psutil.Process(run.record().pid).kill()
        process.wait(PATIENCE_S)
        assert process.returncode == 1
        nobody_is_left(tmp_path)
    assert run.record().state == "lost"


@pytest.mark.long
def test_a_killed_display_stops_its_run_in_order(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        process.kill()
        run = the_run(tmp_path)
        wait_until(lambda: run.record().state == "finished", "the run's end")
    assert checkpoints.newest(run) is not None


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


def test_episodes_end_a_run_with_a_name_and_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    options = ("--no-ui", "--parallel-envs", "4", "--episodes", "2", "--burnin", "100", "--name", "first.try")
    done = run_program(*options, cwd=tmp_path)
    assert re.search(r"^run /.*/checkpoints/first\.try$", done.stdout, re.M)
    again = run_program(*options, cwd=tmp_path, check=2)
    assert "checkpoints/first.try exists already; choose another name, or --resume first.try" in again.stderr
    again = run_program("--no-ui", "--resume", "latest", "--episodes", "9", "--name", "x", cwd=tmp_path, check=2)
    assert "--name: can't rename first.try, which is resumed in its own folder" in again.stderr
    summary = re.search(r"^done \(2 episodes are done\): [\d,]+ environment steps.* (\d+) episodes", done.stdout, re.M)
    assert summary is not None and int(summary[1]) >= 2
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--no-ui", "--stepps", "3"), "unrecognized arguments: --stepps 3"),
        (("--no-ui", "--rom", "/etc/hostname"), "--rom: /etc/hostname: not an iNES file"),
        (("--no-ui", "--actions", "fly"), "--actions must be one of right-only, simple"),
        (("eval", "mario-1-1", "--stage", "0-1"), "--stage must be 1-1 to 8-4, game, random"),
        (("--no-ui", "--steps", "-1"), "--steps must be a whole number of at least 1, got -1"),
        (("--no-ui", "--stage", "1-1,0-1", "--curriculum"), "--stage must be 1-1 to 8-4, game, random"),
        (("--no-ui", "--resume", "nothing"), "--resume: nothing: no such run"),
        (("--no-ui", "--resume", "latest"), "--resume latest: no run has a checkpoint yet"),
        (("--no-ui", "--resume", "/etc"), "--resume: /etc: not a checkpoint of mario-tui"),
        (("--no-ui", "--config", "none.toml"), "none.toml: can't be read (No such file or directory)"),
        (("--no-ui", "--device", "cuda:9"), "--device: cuda:9: this machine has"),
        (("--no-ui", "--run-dir", "/proc/nowhere"), "--run-dir: /proc/nowhere: can't be written"),
        (("eval", "nothing"), "nothing: no such checkpoint; accepted: a policy file"),
        (("eval", "/etc/hostname"), "/etc/hostname: not a policy of mario-tui"),
        (("eval", "x", "--episodes", "0"), "--episodes must be a whole number of at least 1, got '0'"),
        (("play", "nothing"), "nothing: no such checkpoint"),
        (("play", "--stage", "8-4"), "CHECKPOINT: no policy comes with the package for mario 8-4; accepted: "),
        (("play", "latest", "--human"), "CHECKPOINT can't be combined with --human"),
        (("attach", "nothing"), "nothing: no such run"),
        (("--game", "mario"), "the dashboard needs a terminal; use: mario-tui --no-ui"),
        (("--log-format", "json"), "--log-format needs --no-ui"),
        (("--no-ui", "--steps", "1e30"), "--steps must be at most 9,007,199,254,740,992, got '1e30'"),
        (("eval", "mario-1-1", "--seed", "18446744073709551616"), "--seed must be a whole number between 0"),
        (("eval", "snake-12x12", "--stage", "1-2"), "--stage can't be combined with a policy for snake"),
        (
            ("play", "mario-1-1", "--board", "10x10"),
            "--board can't be combined with CHECKPOINT, which determines the board",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    assert refusal(*arguments, cwd=tmp_path).startswith(f"mario-tui: error: {complaint}")
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "the dashboard needs a terminal"),
        (("distill", "mario-1-1", "tetris-7x14"), "tetris-7x14: game must be mario or snake, got tetris"),
        (
            ("distill", "mario-1-1", "--initial-policy", "mario-six-stages"),
            "--initial-policy: network must be nature as in the student, got small in mario-six-stages",
        ),
    ],
)
def test_wrong_usage_ends_the_program_with_status_2(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    done = run_program(*arguments, cwd=tmp_path, check=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mario-tui: error: {complaint}") and done.stdout == ""


def test_resume_of_a_finished_number_of_steps_is_refused(finished_run: FinishedRun) -> None:
    done = run_program("--no-ui", "--resume", str(finished_run.checkpoint), "--steps", "10",
                       cwd=finished_run.folder, check=2)  # fmt: skip
    assert re.search(r"--steps must be above 2,\d+, the checkpoint's environment steps, got 10", done.stderr)


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
    newest = checkpoints.find_source("latest", str(tmp_path / "checkpoints")).path
    assert json.loads((newest / "state.json").read_text("utf-8"))["choices"]["batch_size"] == found


def test_a_replay_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    done = run_program("--no-ui", "--buffer-size", "10_000_000_000", cwd=tmp_path, check=2)
    (line,) = done.stderr.splitlines()
    assert not (tmp_path / "checkpoints").exists()
    assert re.search(r"--buffer-size: 10,000,000,000 transitions take 28,\d\d\d\.\d GiB", line), line
    assert "accepted: up to " in line


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


def test_runs_are_listed_and_evaluated(finished_run: FinishedRun, tmp_path: Path) -> None:
    folder = str(finished_run.folder / "checkpoints")
    (listed,) = [
        record
        for record in json.loads(run_program("runs", "--json", "--run-dir", folder, cwd=tmp_path).stdout)
        if record["name"] == finished_run.run.name
    ]
    assert listed["state"] == "finished"
    assert finished_run.run.name in run_program("runs", "--run-dir", folder, cwd=tmp_path).stdout
    done = run_program("eval", str(finished_run.checkpoint), "--episodes", "3", "--json", cwd=tmp_path)
    (result,) = json_lines(done.stdout)
    assert result["episodes"] == 3
    assert done.stderr == ""  # no bar where nobody sees it move
    manifest = checkpoints.read_manifest(finished_run.checkpoint)
    assert result["policy"] == str(finished_run.checkpoint / checkpoints.POLICY_FILE)
    assert result["name"] == f"{finished_run.run.name} {finished_run.checkpoint.name}"
    assert (result["run"], result["trained_on"]) == (finished_run.run.name, "1-1")
    assert (result["trained_env_steps"], result["trained_updates"]) == (manifest.env_steps, manifest.updates)
    assert 0 <= result["clear_rate_low"] <= result["clear_rate"] <= result["clear_rate_high"] <= 1


@pytest.mark.long
def test_a_policy_is_evaluated_and_played_on_the_given_cartridge(finished_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copy(installed_mario(), tmp_path / "mine.nes")
    (tmp_path / "broken.nes").write_bytes(b"NES\x1a" + bytes(12))

    def result(*arguments: str) -> float:
        done = run_program("eval", str(finished_run.checkpoint), "--episodes=2", "--json", *arguments, cwd=tmp_path)
        return float(json_lines(done.stdout)[0]["mean_return"])

    assert result("--rom", "mine.nes") == result()
    for command in (("eval",), ("eval", "--emulator", "nes-py"), ("play", "--record", "film.gif")):
        done = run_program(*command, str(finished_run.checkpoint), "--rom", "broken.nes", cwd=tmp_path, check=2)
        assert done.stdout == ""
        complaint = f"mario-tui: error: {tmp_path}/broken.nes: has 0 program banks"
        assert done.stderr.splitlines()[-1].startswith(complaint)


@pytest.mark.long
def test_an_evaluation_names_its_policy_and_shows_no_bar_on_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI services do; it is for colours, and nobody sees a bar move
    policy = tmp_path / "copy\x1b[31m.safetensors"
    shutil.copy(policies.folder() / "tetris-7x14.safetensors", policy)
    for named, name in (("tetris-7x14", "tetris-7x14"), (str(policy), r"copy\x1b[31m.safetensors")):
        done = run_program("eval", named, "--episodes", "2", cwd=tmp_path)
        assert done.stderr == ""
        first, path, *rest = done.stdout.splitlines()
        assert first == f"{name}: trained on 7x14, at 1,900,032 environment steps, 29,609 updates"
        assert path.endswith(f"/{name.removesuffix('.safetensors')}.safetensors")
        assert rest[0].startswith("tetris: 2 games, mean score ") and all(rest)
        assert "\x1b" not in done.stdout


@pytest.mark.long
def test_an_episode_is_filmed_without_a_terminal(finished_run: FinishedRun, tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    done = run_program("play", str(finished_run.run.path), "--record", str(film), cwd=tmp_path)
    assert re.search(r"return -?\d+, x \d+, (no )?flag", done.stdout)
    assert re.fullmatch(rf"wrote {re.escape(str(film))}: \d+\.\d s, \d+ pictures, \d\S* [KM]iB\n", done.stderr)
    with Image.open(film) as pictures:
        assert pictures.n_frames > 10  # type: ignore[attr-defined]
    before = film.read_bytes()
    refused = run_program("play", str(finished_run.run.path), "--record", "film.gif", cwd=tmp_path, check=2)
    assert refused.stderr == "mario-tui: error: --record: film.gif exists already; --force overwrites it\n"
    assert film.read_bytes() == before
    run_program("play", str(finished_run.run.path), "--record", "film.gif", "--force", "--seed", "5", cwd=tmp_path)
    assert film.read_bytes() != before


def test_ctrl_c_finishes_a_film_early(tmp_path: Path) -> None:
    command = [*PROGRAM, "play", "tetris-7x14", "--record", "film.gif"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        engine = wait_until(lambda: psutil.Process(process.pid).children(), "the engine")[0]
        wait_until(lambda: engine.io_counters().write_chars > 500_000, "pictures")  # of 184,320 bytes each
        engine.suspend()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        engine.resume()
        shown, said = process.communicate()
    assert (process.returncode, shown) == (130, "")
    assert re.fullmatch(r"wrote .*/film\.gif: \d+\.\d s, \d+ pictures, \d+ KiB\n", said)
    with Image.open(tmp_path / "film.gif") as pictures:
        assert pictures.size == (256, 240)


def test_evaluations_are_reported_and_the_best_policy_is_kept(tmp_path: Path) -> None:
    options = ("--steps", "1500", "--burnin", "300", "--eval-every", "500", "--eval-episodes", "3")
    done = run_program("--no-ui", "--log-format", "json", *options, cwd=tmp_path)
    found = [event for event in json_lines(done.stdout) if event["event"] == "evaluation"]
    assert [event["env_steps"] // 500 for event in found] == [1, 2, 3]
    assert found[0]["best"]
    best = max(found, key=lambda event: (event["clears"], event["mean_return"], event["env_steps"]))
    policy = the_run(tmp_path).path / checkpoints.BEST_POLICY_FILE
    said = checkpoints.policy_metadata(policy)
    assert said["env_steps"] == best["env_steps"]
    assert said["score"] == [best["clears"] / 3, pytest.approx(best["mean_return"])]
    assert checkpoints.find_policy("latest", tmp_path / "checkpoints") == policy
    recorded = the_run(tmp_path).record().best
    assert recorded is not None and (recorded.env_steps, recorded.mean_return) == (
        best["env_steps"],
        best["mean_return"],
    )


@pytest.mark.long
def test_a_changed_learning_rate_is_told(tmp_path: Path) -> None:
    options = ("--game", "snake", "--board", "5x5", "--parallel-envs", "4", "--burnin", "50", "--batch-size", "32",
               "--learning-rate-schedule", "plateau", "--eval-every", "20", "--eval-episodes", "1")  # fmt: skip
    done = run_program("--no-ui", *options, "--steps", "600", cwd=tmp_path)
    first = re.search(r"^learning rate at [\d,]+: 0\.0005 → 0\.00015$", done.stdout, re.M)
    assert first is not None
    again = ("--no-ui", "--log-format", "json", "--resume", "latest", "--steps", "620", "--learning-rate", "0.001")
    events = json_lines(run_program(*again, cwd=tmp_path).stdout)
    changes = [(each["name"], each["value"], each["env_steps"]) for each in events if each["event"] == "change"]
    assert changes == [("learning_rate", 0.001, 600), ("gamma", 0.98, 600)]  # which is not yet the final one again


def test_history_of_a_finished_run_can_be_read(finished_run: FinishedRun) -> None:
    hello = read_recording(finished_run.run.history_path)[0]
    assert isinstance(hello, Hello)
    (*_, end) = (event for event in hello.events if isinstance(event, Finished))
    assert end.summary.env_steps == hello.points[-1].env_steps == finished_run.run.record().env_steps
    assert (hello.run, hello.steps) == (finished_run.run.name, finished_run.run.config().steps)


@pytest.mark.long
def test_a_terminal_of_another_encoding_does_not_end_a_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "--no-ui", "--log-format", "plain", "--parallel-envs", "2", "--steps", "2000", "--burnin", "1000"],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert b"return -  loss -" in done.stdout and b"\\u" not in done.stdout  # not known yet


def test_a_dashboard_in_a_locale_without_its_signs_says_so_before_it_starts_a_run(tmp_path: Path) -> None:
    for arguments in ((), ("--game", "snake")):
        terminal = Terminal(*arguments, cwd=tmp_path, columns=120, under=("env", "PYTHONIOENCODING=latin-1"))
        assert terminal.wait() == 2
        assert "the dashboard needs UTF-8, the locale has iso8859-1; try: LC_ALL=C.UTF-8" in terminal.text()
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_a_full_disk_for_the_output_hides_no_reason(log_format: str, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    command = [*PROGRAM, "--no-ui", "--log-format", log_format, "--restarts", "0", "--parallel-envs", "2"]
    with Path("/dev/full").open("w") as full, errors.open("w") as stderr:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=full, stderr=stderr)
    try:
        wait_until(lambda: "output is lost: No space left on device" in errors.read_text(), "the warning")
        wait_until(lambda: the_run(tmp_path).record().state == "running", "the run")
        runner_of(the_run(tmp_path)).kill()
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        kill_hosts(tmp_path)
    assert "failed: the runner process crashed" in errors.read_text()


def test_the_summary_of_a_board_game_tells_of_no_frames(tmp_path: Path) -> None:
    board = ("--game", "snake", "--board", "4x4", "--parallel-envs", "2", "--eval-every", "0")
    done = run_program("--no-ui", "--log-format", "plain", *board, "--steps", "100", cwd=tmp_path)
    said = done.stdout + done.stderr
    assert "environment steps, " in said and " frame" not in said
