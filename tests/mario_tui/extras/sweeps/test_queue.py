"""The queue of a sweep: kills, tries, full disks, stops, searches."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from engine.config.reading import make_config
from engine.protocol.results import BestEvaluation
from engine.runs.checkpoints import committed
from engine.runs.marks import is_run
from engine.runs.registry import create_run
from engine.runs.run import CONFIG_FILE
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.extras.sweeps.folder import create_sweep, journal_of, what_it_waits_for
from tests.support.gym_envs import FAULTY
from tests.support.program import (
    PROGRAM,
    Terminal,
    kill_hosts,
    no_more_processes,
    nobody_is_left,
    private_disk,
    refusal,
    run_program,
    spawned_by,
    wait_until,
)
from tests.support.sweeps import SNAKE, status, tries_of

# ---------------------------------------------------------------------------------- settings


@pytest.mark.long
@pytest.mark.process
def test_a_queue_survives_kills_and_its_table_is_that_of_the_runs(tmp_path: Path) -> None:
    """Two options with two values each, three seeds; the queue, a run's host and a run's learner are killed."""
    run_program(
        "sweep", *SNAKE, "--steps", "4000", "--save-every", "500", "--eval-every", "1000", "--vary", "n-step=1,3",
        "--vary", "learning-rate=3e-4,1e-3", "--seeds", "3", "--jobs", "3", "--name", "killed", cwd=tmp_path,
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "killed")

    def trains(number: int) -> bool:
        return sweep.run(number).record_path.exists() and sweep.run(number).record().env_steps > 600

    wait_until(lambda: trains(0), "the first run to train")
    os.kill(sweep.run(0).record().pid, signal.SIGKILL)  # the host: the run is lost, and goes on from a checkpoint
    wait_until(lambda: tries_of(sweep, "killed-001") == 2, "the first run to begin again")
    wait_until(lambda: trains(3), "a later run to train")
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    wait_until(lambda: sweep.queue_pid() is None, "the queue's end")
    run_program("sweep", "stop", "killed", cwd=tmp_path)
    nobody_is_left(tmp_path)  # as after a reboot
    run_program("sweep", "resume", "killed", cwd=tmp_path)
    run_program("sweep", "wait", "killed", cwd=tmp_path)
    found = status("killed", tmp_path)
    assert found["states"] == {"finished": 12}
    rows = list(csv.DictReader(run_program("sweep", "status", "killed", "--csv", cwd=tmp_path).stdout.splitlines()))
    assert len(rows) == 12
    for setting in found["settings"]:
        mine = [
            row for row in rows if setting["setting"] == f"n-step={row['n_step']} learning-rate={row['learning_rate']}"
        ]
        best = [float(row["best"]) for row in mine]
        assert len(best) == 3 and setting["best"]["mean"] == pytest.approx(statistics.fmean(best))
        assert setting["best"]["low"] <= setting["best"]["mean"] <= setting["best"]["high"]
        assert setting["env_steps"] == sum(int(row["env_steps"]) for row in mine) >= 12_000


FLAKY = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from pathlib import Path

FLAG = Path(__file__).with_suffix(".flag")

class Flaky(CartPoleEnv):
    steps, is_first_try = 0, not FLAG.exists()

    def step(self, action):
        Flaky.steps += 1
        if Flaky.is_first_try and Flaky.steps > 40:  # in training, not while it is described
            FLAG.touch()
            raise RuntimeError("the simulator has lost its licence")
        return super().step(action)

gymnasium.register("Flaky-v0", entry_point=Flaky)
"""


@pytest.mark.process
def test_a_second_try_keeps_what_the_first_has_left(tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    run_program(
        "sweep", "--game", "gym:flaky:Flaky-v0", "--parallel-envs", "1", "--restarts", "0", "--steps", "64", "--burnin",
        "32", "--eval-every", "0", "--seeds", "1", "--name", "flaky", cwd=tmp_path,
    )  # fmt: skip
    done = run_program("sweep", "wait", "flaky", "--json", cwd=tmp_path)
    assert "flaky-001, earlier try failed: " in done.stderr and json.loads(done.stdout)["state"] == "finished"
    sweep = Sweep(tmp_path / "checkpoints" / "flaky")
    assert "lost its licence" in (sweep.path / "earlier" / "flaky-001-1" / "run.log").read_text()
    assert "lost its licence" not in sweep.run(0).log_path.read_text()
    log = sweep.log_path.read_text()
    assert "flaky-001 failed: " in log and "again, from the beginning" in log and "lost its licence" in log


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="only root can give files away")
@pytest.mark.process
def test_what_others_have_put_in_the_place_of_runs_is_a_failure_of_these_alone(tmp_path: Path) -> None:
    """The sweep is one of an ordinary user's: in its name space, root is user 12345, and may do no more."""
    user = ["unshare", "--user", "--map-user=12345"]
    if subprocess.run([*user, "true"]).returncode:
        pytest.skip("this system lets nobody be another user")
    options: dict[str, Any] = {"game": "snake:5x5", "burnin": 200, "buffer_size": 4000, "steps": 400}
    members = tuple(Member({}, seed) for seed in range(5))
    sweep = create_sweep(tmp_path / "checkpoints", "shared", SweepPlan(options, jobs=1, threads=1, members=members))
    full, private, record, link, _ = runs = [sweep.run(number) for number in range(5)]
    for run in (full, private, record):
        create_run(make_config({"game": "snake", "run_dir": str(sweep.path)}), run.name)
        best = BestEvaluation(env_steps=400, episodes=1, clears=0, mean_return=999)
        run.write_record(msgspec.structs.replace(run.record(), state="finished", env_steps=400, best=best))
    for path in (full.path, private.path, record.record_path):
        os.chown(path, 65534, 65534)
    private.path.chmod(0o700)
    link.path.symlink_to(create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}), "elsewhere").path)
    for _ in range(2):
        subprocess.run([*user, *PROGRAM, "sweep", "resume", "shared"], cwd=tmp_path, check=True)
        waited = subprocess.run(
            [*user, *PROGRAM, "sweep", "wait", "shared", "--json"], cwd=tmp_path, capture_output=True, text=True
        )
        found = json.loads(waited.stdout)
        assert waited.returncode == 1 and found["states"] == {"failed": 4, "finished": 1}
        reasons = [found["failed"].get(run.name, "") for run in runs]
        assert [re.sub("^.*: ", "", reason) for reason in reasons] == [
            "belongs to nobody, not to the owner of the sweep", "belongs to nobody, not to the owner of the sweep",
            "belongs to nobody, not to the owner of the sweep", "is a link; the runs of a sweep lie in its folder", "",
        ]  # fmt: skip
    assert not [run.name for run in runs[:4] if (run.path / "run.log").exists()]
    stopped = subprocess.run([*user, *PROGRAM, "sweep", "stop", "shared"], cwd=tmp_path, capture_output=True, text=True)
    assert stopped.returncode == 0, stopped.stderr
    assert [row["best"] for row in status("shared", tmp_path)["runs"]][:4] == [None] * 4


@pytest.mark.process
def test_a_sweep_that_is_stopping_says_so_and_takes_no_more_runs(tmp_path: Path) -> None:
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0),))
    sweep = create_sweep(tmp_path / "checkpoints", "ending", plan)
    sweep.note("stopping")
    with sweep.lock():
        assert status("ending", tmp_path)["state"] == "stopping"
        for command, more in (("add", ("--seeds", "1")), ("resume", ())):
            assert "ending: is stopping" in refusal("sweep", command, "ending", *more, cwd=tmp_path)
        for command in ("stop", "wait"):
            done = run_program("sweep", command, "ending", "--timeout", "0", "--json", cwd=tmp_path, check=124)
            assert json.loads(done.stdout)["status"] == 124
    assert status("ending", tmp_path)["state"] == "stopped" and sweep.plan().members == plan.members


def removed(folder: Path) -> bool:
    """Remove a folder that others may be writing to, as `rm -rf` does."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.mark.process
def test_a_sweep_that_is_being_removed_begins_nothing(tmp_path: Path) -> None:
    run_program(
        "sweep", *SNAKE, "--steps", str(10**9), "--seeds", "3", "--jobs", "1", "--name", "gone", cwd=tmp_path
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "gone")
    wait_until(lambda: is_run(sweep.run(0).path), "the first run")
    wait_until(lambda: removed(sweep.run(0).path), "its removal")
    wait_until(
        lambda: status("gone", tmp_path)["states"] == {"deleted": 1, "waiting": 2}, "what the queue does about it"
    )
    wait_until(lambda: removed(sweep.path), "the removal of all")
    nobody_is_left(tmp_path)
    assert not sweep.path.exists()


@pytest.mark.process
def test_a_run_whose_host_crashes_while_it_is_removed_does_not_begin_again(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", str(10**9), "--seeds", "2", "--jobs", "1", "--name", "half", cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "half")
    run = sweep.run(0)
    wait_until(lambda: is_run(run.path) and run.record().socket and run.is_alive(), "the first run")
    (run.path / CONFIG_FILE).unlink()
    os.kill(run.record().pid, signal.SIGKILL)
    wait_until(lambda: not journal_of(sweep, sweep.plan()).of(run.name).is_open, "what the queue does about it")
    wait_until(lambda: removed(run.path), "its removal")
    assert status("half", tmp_path)["states"] == {"deleted": 1, "waiting": 1}
    run_program("sweep", "stop", "half", cwd=tmp_path)
    nobody_is_left(tmp_path)


@pytest.mark.process
def test_a_queue_whose_lock_was_removed_is_the_only_one(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", str(10**9), "--seeds", "1", "--name", "free", cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "free")
    pid = sweep.queue_pid()
    (sweep.path / "sweep.lock").unlink()
    assert sweep.queue_pid() == pid
    assert "free: is running already" in refusal("sweep", "resume", "free", cwd=tmp_path)
    queue = subprocess.run(
        [sys.executable, "-P", "-m", "mario_tui.extras.sweeps.queue", str(sweep.path)], cwd=sweep.path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (queue.returncode, queue.stderr) == (1, "the queue ends: free: has a queue already\n")
    run_program("sweep", "stop", "free", cwd=tmp_path)
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.process
def test_a_suspended_host_keeps_no_other_run_from_stopping(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", str(10**9), "--seeds", "2", "--jobs", "2", "--name", "two", cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "two")
    wait_until(lambda: status("two", tmp_path)["states"].get("running") == 2, "both runs to train")
    host = psutil.Process(sweep.run(0).record().pid)
    host.suspend()
    run_program("sweep", "stop", "two", "--timeout", "0", cwd=tmp_path, check=124)
    wait_until(lambda: not sweep.run(1).is_alive(), "the other run's end")
    assert status("two", tmp_path)["state"] == "stopping"
    host.resume()
    run_program("sweep", "stop", "two", cwd=tmp_path)
    assert status("two", tmp_path)["states"] == {"stopped": 2}
    assert {each["reason"] for each in status("two", tmp_path)["runs"]} == {"its sweep was stopped"}


def one_at_a_time(folder: Path, steps: int) -> Sweep:
    """A sweep of two runs, whose first one trains."""
    run_program(
        "sweep", *SNAKE, "--steps", str(steps), "--save-every", "300", "--seeds", "2", "--jobs", "1", "--name", "one",
        cwd=folder,
    )  # fmt: skip
    sweep = Sweep(folder / "checkpoints" / "one")
    first = sweep.run(0)
    wait_until(lambda: first.record_path.exists() and first.record().env_steps > 600, "the first run to train")
    return sweep


@pytest.mark.process
def test_a_sweep_waits_for_processes_and_says_so(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 10**9)
    queue = sweep.queue_pid()
    assert queue
    with no_more_processes(queue):
        run_program("stop", "one-001", cwd=tmp_path)
        wait_until(lambda: what_it_waits_for(sweep), "the queue to wait")
        found = status("one", tmp_path)
        assert found["waits_for"].startswith("processes: fewer than 32 can be started")
        assert found["states"] == {"stopped": 1, "waiting": 1} and not found["runs"][1]["reason"]
        said = run_program("sweep", "status", "one", cwd=tmp_path).stdout
        assert "its queue waits for processes: fewer than 32" in said
        terminal = Terminal("sweep", "watch", "one", cwd=tmp_path, columns=120, rows=40)
        terminal.wait_for("waits for processes: fewer than 32")
        terminal.send("q")
        terminal.wait()
    wait_until(lambda: tries_of(sweep, "one-002"), "the second run to begin")
    assert not what_it_waits_for(sweep)
    run_program("sweep", "stop", "one", cwd=tmp_path)
    log = sweep.log_path.read_text()
    assert log.count("waits for processes") == log.count("there is enough again (processes)") == 1


def on_a_disk_of_100_mib() -> None:
    """What the test below does on it."""
    disk = Path.cwd()

    def fill(size: int | None) -> None:
        with contextlib.suppress(OSError), (disk / "other").open("wb", buffering=0) as file:
            for _ in range(128 if size is None else size):
                file.write(bytes(2**20))

    fill(60)
    run_program("sweep", *SNAKE, "--steps", "4000", "--save-every", "1000", "--seeds", "2", "--jobs", "1", "--name",
                "full", cwd=disk)  # fmt: skip
    sweep = Sweep(disk / "checkpoints" / "full")
    wait_until(lambda: what_it_waits_for(sweep), "the queue to wait")
    assert f"disk space: {sweep.path} has room for less than 64.0 MiB" == status("full", disk)["waits_for"]
    assert not any(sweep.run(number).path.exists() for number in range(2))
    (disk / "other").unlink()
    wait_until(lambda: is_run(sweep.run(0).path) and committed(sweep.run(0)), "a checkpoint")
    fill(None)
    wait_until(lambda: what_it_waits_for(sweep), "the queue to wait again")
    wait_until(lambda: status("full", disk)["states"] == {"waiting": 2}, "the end of the run")
    (disk / "other").unlink()
    run_program("sweep", "wait", "full", cwd=disk)
    found = status("full", disk)
    assert found["states"] == {"finished": 2} and [each["tries"] for each in found["runs"]] == [1, 1]
    assert "full-001 started again, from step-" in sweep.log_path.read_text()
    assert not (sweep.path / "earlier").exists()


@pytest.mark.long
@pytest.mark.process
def test_a_sweep_waits_for_disk_space_and_loses_no_try(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    inside = f"from {__name__} import on_a_disk_of_100_mib as work; work()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    try:
        done = subprocess.run(
            [*private_disk(disk, "100m"), sys.executable, "-c", inside], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        kill_hosts(tmp_path)


@pytest.mark.process
def test_a_queue_can_be_stopped_while_the_journal_has_no_room(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 10**9)
    queue = psutil.Process(sweep.queue_pid())
    queue.rlimit(psutil.RLIMIT_FSIZE, (0, 0))  # as on a full disk, its writes fail from now on
    os.kill(queue.pid, signal.SIGTERM)
    wait_until(lambda: sweep.queue_pid() is None, "the queue's end")
    assert not sweep.run(0).is_alive() and sweep.run(0).record().told_state == "stopped"


@pytest.mark.long
@pytest.mark.process
def test_a_resumed_run_has_its_place_from_the_start(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 3000)
    first, second = sweep.run(0), sweep.run(1)
    run_program("sweep", "stop", "one", cwd=tmp_path)
    assert not second.record_path.exists()
    run_program("sweep", "resume", "one", cwd=tmp_path)
    run_program("sweep", "wait", "one", cwd=tmp_path)
    assert first.record().env_steps >= 3000 and second.record().created_at >= first.record().updated_at


@pytest.mark.long
@pytest.mark.process
def test_a_paused_run_whose_host_was_killed_has_its_place_again(tmp_path: Path) -> None:
    sweep = one_at_a_time(tmp_path, 10**9)
    first, second = sweep.run(0), sweep.run(1)
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    run_program("pause", "one-001", cwd=tmp_path)
    os.kill(first.record().pid, signal.SIGKILL)
    wait_until(lambda: not first.is_alive(), "the host's end")
    nobody_is_left(tmp_path)
    run_program("sweep", "resume", "one", cwd=tmp_path)
    wait_until(lambda: first.record().state == "running", "the first run to train again")
    assert not second.record_path.exists()
    run_program("sweep", "stop", "one", cwd=tmp_path)
    assert not second.record_path.exists()


@pytest.mark.long
@pytest.mark.usefixtures("executed")
@pytest.mark.process
def test_a_run_that_is_stopped_during_its_start_is_not_begun_again(tmp_path: Path) -> None:
    run_program("sweep", *SNAKE, "--steps", "300", "--seeds", "1", "--name", "early", cwd=tmp_path)
    run = Sweep(tmp_path / "checkpoints" / "early").run(0)
    wait_until(lambda: run.record_path.exists() and run.record().socket, "the host")
    (runner,) = wait_until(lambda: spawned_by(psutil.Process(run.record().pid)), "the runner")
    runner.suspend()  # while it imports PyTorch
    run_program("stop", "early-001", cwd=tmp_path)
    run_program("sweep", "wait", "early", cwd=tmp_path, check=1)
    assert status("early", tmp_path)["states"] == {"stopped": 1}
    run_program("sweep", "resume", "early", cwd=tmp_path)
    run_program("sweep", "wait", "early", cwd=tmp_path)
    assert status("early", tmp_path)["states"] == {"finished": 1}


@pytest.mark.long
@pytest.mark.process
def test_a_run_that_fails_twice_is_named_and_blocks_no_other(tmp_path: Path) -> None:
    faulty = ("--game", FAULTY, "--env-args", '{"fault": "raise", "times": 100}', "--burnin", "50", "--restarts", "0")
    run_program(
        "sweep", *faulty, "--vary", "steps=2000,64", "--vary", "parallel-envs=1", "--jobs", "1", "--name", "ill",
        cwd=tmp_path,
    )  # fmt: skip
    run_program("sweep", "wait", "ill", cwd=tmp_path, check=1)
    found = status("ill", tmp_path)
    assert found["states"] == {"failed": 1, "finished": 1} and found["state"] == "failed"
    failed, finished = found["runs"]
    assert "the joint is broken" in failed["reason"] == found["failed"]["ill-001"] and not finished["reason"]
    (earlier,) = failed["earlier"]
    assert (
        "the joint is broken" in earlier["reason"]
        and "the joint is broken" in (Path(earlier["path"]) / "run.log").read_text()
    )
    log = (tmp_path / "checkpoints" / "ill" / "sweep.log").read_text()
    assert log.count("ill-001 failed: ") == log.count("the joint is broken") == 2
    assert log.count("ill-001 started") == 2 and log.count("ill-002 started") == 1 and "can't be started" not in log
    said = " ".join(run_program("sweep", "status", "ill", cwd=tmp_path).stdout.split())
    assert "ill-001 failed: " in said and "the joint is broken" in said and said.endswith("ill-001/run.log")


@pytest.mark.long
@pytest.mark.process
def test_a_search_chooses_one_setting_after_the_other(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run_program(
        "sweep", *SNAKE, "--steps", "600", "--eval-every", "300", "--eval-episodes", "4", "--vary",
        "learning-rate=log:1e-4..1e-2", "--vary", "double-q=true,false", "--sample", "4", "--search", "tpe", "--jobs",
        "1", "--name", "found", cwd=tmp_path,
    )  # fmt: skip
    run_program("sweep", "wait", "found", cwd=tmp_path)
    found = status("found", tmp_path)
    assert found["states"] == {"finished": 4} and len(found["settings"]) == 4
    rates = [float(each["learning_rate"]) for each in found["runs"]]
    assert len(set(rates)) == 4 and all(1e-4 <= rate <= 1e-2 for rate in rates)


@pytest.mark.long
@pytest.mark.process
def test_a_hopeless_setting_is_pruned_for_good(tmp_path: Path) -> None:
    """Its second seed never begins, and the queue is killed before it can have seen the first one's end."""
    pytest.importorskip("optuna")
    run_program(
        "sweep", "--game", "gym:CartPole-v1", "--steps", "4000", "--eval-every", "500", "--eval-episodes", "4",
        "--parallel-envs", "4", "--replay-ratio", "32", "--batch-size", "32", "--burnin", "200", "--tau", "0.02",
        "--policy-tau", "0.02", "--epsilon-steps", "500", "--vary", "learning-rate=1e-3,2e-3,3e-3,4e-3,1e-8", "--seeds",
        "2", "--jobs", "2", "--prune", "median", "--name", "pruned", cwd=tmp_path,
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "pruned")
    wait_until(lambda: status("pruned", tmp_path)["states"].get("pruned"), "a setting to be pruned", patience_s=300)
    queue = sweep.queue_pid()
    assert queue is not None
    os.kill(queue, signal.SIGKILL)
    wait_until(lambda: sweep.queue_pid() is None, "the queue's end")
    for _ in range(2):  # the second time, there is nothing to do
        run_program("sweep", "resume", "pruned", cwd=tmp_path)
        run_program("sweep", "wait", "pruned", cwd=tmp_path)
    found = status("pruned", tmp_path)
    assert found["states"] == {"finished": 8, "pruned": 2}
    hopeless = [each for each in found["runs"] if each["learning_rate"] == 1e-8]
    assert [each["state"] for each in hopeless] == ["pruned", "pruned"] and hopeless[1]["env_steps"] == 0
    assert 1000 <= hopeless[0]["env_steps"] < 4000 and sweep.run(4).record().checkpoint is not None
    assert [each["tries"] for each in hopeless] == [1, 0]
    run_program("sweep", "add", "pruned", "--seeds", "1", cwd=tmp_path)
    assert len(sweep.plan().members) == 14
    run_program("sweep", "stop", "pruned", cwd=tmp_path)
