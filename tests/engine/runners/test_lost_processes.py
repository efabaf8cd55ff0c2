"""Killed, stopped and hung processes of a run: it goes on, begins again or fails, and nobody is left."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from engine.host.client import HostClient
from engine.protocol.commands import Checkpoint
from engine.protocol.messages import Failed, Log, Members, Progress, Ready, Saved
from engine.runners.links import SILENCE_LIMIT_S
from engine.runners.shared_state import HEARTBEAT_S
from engine.runs.run import Run
from tests.support.program import (
    PATIENCE_S,
    children_of,
    headless,
    members_of,
    next_event,
    nobody_is_left,
    read_event,
    runner_of,
    the_run,
    wait_until,
)
from tests.support.runners import ENDLESS, RUNNERS, SNAKE, train, training

pytestmark = pytest.mark.process


def checkpoint_of_a_learner(client: HostClient) -> Saved:
    """A checkpoint of a run, once it learns."""
    next_event(client, Progress, lambda p: p.updates > 5)
    client.send(Checkpoint())
    saved: Saved = next_event(client, Saved)
    return saved


def learns_on_from(client: HostClient, saved: Saved) -> None:
    """The run has restarted from a checkpoint, and learns."""
    again = next_event(client, Progress, lambda p: p.state == "running")
    assert again.env_steps >= saved.env_steps
    next_event(client, Progress, lambda p: p.updates > again.updates + 5)


def plays_on(client: HostClient, index: int, steps: int) -> None:
    next_event(client, Members, lambda m: m.members[index].env_steps > steps)


def learns_on(client: HostClient, updates: int) -> None:
    learned = next_event(client, Progress).updates
    next_event(client, Progress, lambda p: p.updates > learned + updates)


def kill_actors(folder: Path, kills: int, how: signal.Signals) -> None:
    """Take one actor after the other while Ape-X trains, and wait until each is replaced and plays."""
    choose = random.Random(0)
    with training(*ENDLESS, *RUNNERS["apex"], cwd=folder) as (run, client):
        next_event(client, Members, lambda m: all(member.ready for member in m.members))
        for number in range(kills):
            victim = choose.choice(members_of(run))
            at = time.monotonic()
            victim.send_signal(how)
            lost = next_event(client, Log, lambda log: log.text.endswith("; restarted"))
            assert time.monotonic() - at < (20 if how == signal.SIGSTOP else 10)  # 5 s on an idle machine
            index = int(lost.text.split()[1])
            back = next_event(client, Members, lambda m: all(member.ready for member in m.members))
            assert sum(member.restarts for member in back.members) == number + 1
            plays_on(client, index, back.members[index].env_steps)
        learns_on(client, 5)


@pytest.mark.long
def test_killed_actors_are_replaced_and_training_goes_on(tmp_path: Path) -> None:
    kill_actors(tmp_path, 3, signal.SIGKILL)


@pytest.mark.long
def test_a_stopped_actor_is_replaced(tmp_path: Path) -> None:
    kill_actors(tmp_path, 1, signal.SIGSTOP)


@pytest.mark.long
def test_a_machine_that_stood_still_costs_no_member(tmp_path: Path) -> None:
    """A suspended container, say: whoever looks first when it goes on must not take the others for dead."""
    with headless(*ENDLESS, *RUNNERS["parallel"], cwd=tmp_path) as process:
        read_event(process, "episode", actor=1)
        run = the_run(tmp_path)
        leader, members = runner_of(run), members_of(run)
        host = psutil.Process(run.record().pid)
        for each in (host, leader, *members):
            each.suspend()
        time.sleep(HEARTBEAT_S + 1)  # the machine's standstill, in which nobody gives a heartbeat
        host.resume()
        leader.resume()
        with HostClient(run) as client:
            for _ in range(2):
                next_event(client, Members)  # reports of the leader, which has looked at the others by then
            for each in members:
                each.resume()
            before = next_event(client, Members).members[1].env_steps
            for _ in range(12):  # half a second each: more than the pool's patience
                back = next_event(client, Members)
            assert back.members[1].env_steps > before
            assert [member.restarts for member in back.members] == [0, 0]


@pytest.mark.long
def test_many_killed_actors_are_replaced(tmp_path: Path) -> None:
    kill_actors(tmp_path, 50, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("runner", ["single", *RUNNERS])
def test_a_run_without_its_learner_begins_again_from_the_newest_checkpoint(runner: str, tmp_path: Path) -> None:
    train(tmp_path, *ENDLESS, *RUNNERS.get(runner, ()), "--parallel-envs", "2", "--steps", "300")
    with training("--resume", "latest", *ENDLESS, cwd=tmp_path) as (run, client):
        leader_is_lost(client, run, signal.SIGKILL)  # before it has written a checkpoint of its own
        next_event(client, Progress, lambda p: p.updates > 5)
        with HostClient(run) as late:
            past = [event for event in late.hello.events if getattr(event, "env_steps", 300) < 300]
        assert past
        client.send(Checkpoint())
        saved = next_event(client, Saved)
        victims = [runner_of(run)]
        if runner == "ddp":
            victims.append(members_of(run)[0])  # a rank is as good as the learner
        for victim in victims:
            later = next_event(client, Progress, lambda p: p.env_steps > saved.env_steps)
            victim.kill()
            said = next_event(client, Log, lambda log: "restarting from step-" in log.text)
            assert "killed by" in said.text
            again = next_event(client, Progress, lambda p: p.state == "running")
            assert saved.env_steps <= again.env_steps < max(later.env_steps, saved.env_steps + 500)
            if runner == "ddp":
                victims[1:] = members_of(run)[:1] if victim is victims[0] else victims[1:]


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_killed_host_leaves_nothing(runner: str, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    shared_before = set(shared.iterdir()) if shared.is_dir() else None
    with headless(*ENDLESS, *RUNNERS[runner], cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            next_event(client, Members, lambda m: all(member.env_steps > 0 for member in m.members))
        members_of(run)[0].suspend()  # a stopped process can't notice anything by itself
        psutil.Process(run.record().pid).kill()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        nobody_is_left(tmp_path)
    if shared_before is not None:
        assert set(shared.iterdir()) <= shared_before


def leader_is_lost(client: HostClient, run: Run, how: signal.Signals) -> Log:
    """Take the leading process; what the host says of it."""
    runner_of(run).send_signal(how)
    said: Log = next_event(client, Log, lambda log: "restarting from" in log.text)
    return said


@pytest.mark.long
def test_a_run_that_is_lost_again_and_again_fails(tmp_path: Path) -> None:
    with headless(*ENDLESS, *RUNNERS["apex"], "--restarts", "1", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            said = leader_is_lost(client, run, signal.SIGKILL)
            assert "restarting from the beginning (1 of 1)" in said.text
            next_event(client, Ready)
            runner_of(run).kill()
            failed = next_event(client, Failed)
            assert failed.reason == "the runner process crashed (killed by SIGKILL)"
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        assert "failed: the runner process crashed (killed by SIGKILL); log:" in errors.splitlines()[-1]
    nobody_is_left(tmp_path)  # who was starting yet has to notice


@pytest.mark.long
def test_a_member_that_never_becomes_ready_ends_the_run_for_good(tmp_path: Path) -> None:
    with headless(*ENDLESS, "--runner", "apex", "--num-actors", "1", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            next_event(client, Members, lambda m: m.members[0].env_steps > 0)
            leader, taken = runner_of(run), list[int]()
            while len(taken) < 4:  # the first was ready
                (actor,) = wait_until(
                    lambda: [each for each in children_of(leader) if each.pid not in taken], "another actor"
                )
                taken.append(actor.pid)
                actor.kill()
            failed = next_event(client, Failed)
            assert failed.reason == "actor 0 was lost (killed by SIGKILL)"
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
    assert "restarting" not in run.log_path.read_text()
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_stopped_member_does_not_keep_a_run_from_ending_in_order(tmp_path: Path) -> None:
    with training(*ENDLESS, *RUNNERS["apex"], cwd=tmp_path) as (run, client):
        next_event(client, Members, lambda m: all(member.env_steps > 0 for member in m.members))
        for member in members_of(run):
            member.suspend()


@pytest.mark.long
@pytest.mark.parametrize("runner", ["single", *RUNNERS])
def test_a_run_whose_learner_stands_still_begins_again_from_the_newest_checkpoint(runner: str, tmp_path: Path) -> None:
    with training(*ENDLESS, *RUNNERS.get(runner, ()), cwd=tmp_path) as (run, client):
        saved = checkpoint_of_a_learner(client)
        at = time.monotonic()
        said = leader_is_lost(client, run, signal.SIGSTOP)
        assert SILENCE_LIMIT_S - 2 < time.monotonic() - at < SILENCE_LIMIT_S + 10
        assert "the runner process hung; restarting from step-" in said.text
        learns_on_from(client, saved)


@pytest.mark.long
def test_a_rank_that_stands_still_makes_the_run_begin_again(tmp_path: Path) -> None:
    with training(*ENDLESS, *RUNNERS["ddp"], cwd=tmp_path) as (run, client):
        saved = checkpoint_of_a_learner(client)
        members_of(run)[0].suspend()
        said = next_event(client, Log, lambda log: "restarting from" in log.text)
        assert "rank 1 was lost (it hung); restarting from step-" in said.text
        learns_on_from(client, saved)


def lock_holders() -> set[int]:
    """Processes that hold a POSIX record lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return {int(line.split()[4]) for line in lines if "POSIX" in line and "->" not in line}


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="tells who holds the lock")
def test_a_worker_that_is_lost_with_the_lock_is_replaced(how: signal.Signals, tmp_path: Path) -> None:
    options = (*ENDLESS, "--runner", "parallel", "--num-processes", "2", "--replay-ratio", "64")
    with training(*options, cwd=tmp_path) as (run, client):
        next_event(client, Progress, lambda p: p.updates > 10)
        for number in range(2):
            next_event(client, Members, lambda m: all(member.env_steps_per_s > 0 for member in m.members))
            (worker,) = members_of(run)

            def stopped_with_the_lock(worker: psutil.Process = worker) -> bool:
                if worker.pid not in lock_holders():
                    return False
                worker.suspend()
                if worker.pid in lock_holders():
                    return True
                worker.resume()
                return False

            wait_until(stopped_with_the_lock, "a worker with the lock")
            if how == signal.SIGKILL:
                worker.kill()
            lost = next_event(client, Log, lambda log: log.text.endswith("; restarted"))
            assert lost.text.startswith("worker 1 was lost")
            learns_on(client, 10)
            members = next_event(client, Members, lambda m: all(member.ready for member in m.members)).members
            assert [member.restarts for member in members] == [0, number + 1]


@pytest.mark.long
def test_a_worker_of_a_resumed_run_is_replaced_after_its_checkpoint_is_gone(tmp_path: Path) -> None:
    train(tmp_path, *SNAKE, *RUNNERS["parallel"], "--eval-every", "0", "--parallel-envs", "2", "--steps", "1500",
          "--buffer-size", "20000")  # fmt: skip
    options = ("--resume", "latest", "--steps", "100000000", "--save-every", "100000000", "--keep", "1")
    with training(*options, cwd=tmp_path) as (run, client):
        going = next_event(client, Progress, lambda p: p.env_steps > 1600)
        assert going.updates > 0
        client.send(Checkpoint())
        next_event(client, Saved)
        assert not (run.path / "step-000000001500").exists()
        members_of(run)[0].kill()
        next_event(client, Log, lambda log: log.text.endswith("; restarted"))
        back = next_event(client, Members, lambda m: all(member.ready for member in m.members)).members
        next_event(client, Members, lambda m: m.members[1].env_steps > back[1].env_steps)
