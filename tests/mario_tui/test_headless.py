"""`mario-tui --no-ui` as scripts use it: what it prints and writes, and its exit statuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from engine.host.client import HostClient, HostGone
from engine.protocol.commands import Checkpoint, Stop
from engine.protocol.json_lines import Gap
from engine.protocol.messages import Finished, Hello, Progress, Saved
from engine.runs.recording import read_recording
from mario_tui.headless import JSONLines, _connections
from tests.support.app import start
from tests.support.policy_files import weights
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    FinishedRun,
    Terminal,
    headless,
    json_lines,
    members_of,
    next_event,
    read_event,
    rest_of,
    run_program,
    runner_of,
    the_run,
    wait_until,
)

pytestmark = pytest.mark.process


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
    assert kinds == {"progress", "episode", "checkpoint", "final_evaluation", "summary"}
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


def test_only_the_events_that_are_wanted_are_printed_and_how_the_run_ended(tmp_path: Path) -> None:
    options = ("--game", "tetris", "--parallel-envs", "2", "--burnin", "100", "--steps", "600", "--eval-every", "300")
    shown = ("--log-format", "json", "--log-events", "evaluation,checkpoint", "--eval-episodes", "2")
    done = run_program("--no-ui", *options, *shown, cwd=tmp_path)
    lines = json_lines(done.stdout)
    assert [line["event"] for line in lines if line["event"] != "checkpoint"] == ["evaluation"] * 2 + ["summary"]
    assert lines[0]["clears"] is None and "mean_score" in lines[0]  # tetris has no goal
    (listed,) = json.loads(run_program("runs", "--json", "--evaluations", cwd=tmp_path).stdout)
    assert listed["best"]["clears"] is listed["evaluations"][0]["clears"] is None


def test_a_gap_is_told_of_events_that_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = JSONLines(["warning"])
    for missing in ({"episode": 3}, {"episode": 3, "log": 2}):
        wanted.show(Gap(missing))
    assert json_lines(capsys.readouterr().out) == [{"event": "gap", "missing": {"log": 2}}]


def test_a_replay_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    done = run_program("--no-ui", "--buffer-size", "10_000_000_000", cwd=tmp_path, check=2)
    (line,) = done.stderr.splitlines()
    assert not (tmp_path / "checkpoints").exists()
    assert re.search(r"--buffer-size: 10,000,000,000 transitions take 28,\d\d\d\.\d GiB", line), line
    assert "accepted: up to " in line


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


def test_the_summary_of_a_board_game_tells_of_no_frames(tmp_path: Path) -> None:
    board = ("--game", "snake", "--board", "4x4", "--parallel-envs", "2", "--eval-every", "0")
    done = run_program("--no-ui", "--log-format", "plain", *board, "--steps", "100", cwd=tmp_path)
    said = done.stdout + done.stderr
    assert "environment steps, " in said and " frame" not in said
