"""Ape-X on a Ray cluster: a head and nodes as processes of this machine, killed, stopped and joined while it learns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import engine
from engine.extras.ray.named_cluster import answer_of
from engine.host.client import HostClient
from engine.protocol.commands import Checkpoint, Stop
from engine.protocol.messages import Finished, Log, Members, Progress, Saved
from tests.support.program import (
    PATIENCE_S,
    headless,
    next_event,
    read_event,
    rest_of,
    run_program,
    runner_of,
    the_run,
    wait_until,
)
from tests.support.ray_cluster import Cluster, ray_cluster, raylet_of

pytestmark = pytest.mark.process

SNAKE = (
    "--runner", "apex", "--game", "snake", "--board", "5x5", "--no-amp", "--batch-size", "64", "--burnin", "200",
    "--eval-every", "0", "--save-every", "100000000", "--buffer-size", "20000",
)  # fmt: skip
ENDLESS = (*SNAKE, "--steps", "100000000")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as started:
        yield started


def actors(cluster: Cluster) -> list[psutil.Process]:
    """Processes of actors on all nodes of a cluster."""
    found = []
    for node in cluster.list_all_nodes():
        with contextlib.suppress(psutil.Error):
            children = raylet_of(node).children()
            found += [process for process in children if process.name().startswith("ray::_NodeActor")]
    return found


@contextlib.contextmanager
def training(cluster: Cluster, folder: Path, *options: str) -> Iterator[tuple[Any, HostClient]]:
    """A run on a cluster that has begun to learn."""
    with headless(*ENDLESS, "--ray", cluster.address, *options, cwd=folder) as process:
        read_event(process, "progress", state="running")
        with HostClient(the_run(folder)) as client:
            next_event(client, Progress, lambda p: p.updates > 0)
            yield process, client


def plays(client: HostClient, *indices: int, restarts: int = 0) -> Members:
    """Wait until these actors have stored steps after so many restarts each."""
    before: dict[int, int] = {}

    def going_on(m: Members) -> bool:
        for index in indices:
            if m.members[index].ready and m.members[index].restarts == restarts:
                before.setdefault(index, m.members[index].env_steps)
        return all(index in before and m.members[index].env_steps > before[index] for index in indices)

    return next_event(client, Members, going_on)


@pytest.mark.long
def test_a_killed_actor_is_replaced_and_stop_leaves_nobody(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2)
    with training(cluster, tmp_path) as (process, client):
        plays(client, 0, 1)
        victim = actors(cluster)[0]
        victim.kill()
        log = next_event(client, Log, lambda log: "was lost" in log.text)
        assert "; restarted" in log.text
        lost = int(log.text.split()[1])
        plays(client, lost, restarts=1)
        assert plays(client, 1 - lost).members[1 - lost].restarts == 0
        client.send(Stop())
        assert next_event(client, Finished).summary.checkpoint is not None
        assert rest_of(process)[-1]["event"] == "summary"
    wait_until(lambda: not actors(cluster), "the end of all actors")
    assert len(cluster.list_all_nodes()) == 2 and all(node.any_processes_alive() for node in cluster.list_all_nodes())


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "suspended"])
def test_actors_of_a_lost_node_play_elsewhere(how: str, cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2)
    with training(cluster, tmp_path) as (_, client):
        plays(client, 0, 1)
        first = actors(cluster)
        assert len(first) == 2
        lost_node = cluster.list_all_nodes()[-1]
        spare = cluster.add_node(num_cpus=2)
        cluster.wait_for_nodes()
        if how == "killed":
            cluster.remove_node(lost_node, allow_graceful=False)
        else:
            raylet = raylet_of(lost_node)
            for process in (raylet, *raylet.children(recursive=True)):
                process.suspend()
        plays(client, 0, 1, restarts=1)
        assert spare.any_processes_alive()
        playing = [process for process in actors(cluster) if process not in first]
        assert {process.ppid() for process in playing} == {raylet_of(spare).pid}


@pytest.mark.long
def test_a_node_with_other_sources_is_named(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(Path(engine.__file__).parent, tmp_path / "other" / "engine")
    with (tmp_path / "other" / "engine" / "errors.py").open("a") as file:
        file.write("# changed\n")
    cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path / "other")})
    done = run_program("--no-ui", *ENDLESS, "--ray", cluster.address, cwd=tmp_path, check=2)
    assert f"--ray: {socket.gethostname()} has other sources than this machine" in done.stderr
    assert not any((tmp_path / "checkpoints").iterdir())


@pytest.mark.long
def test_a_cluster_whose_token_is_missing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = "0" * 32, "1" * 32
    start = (
        "import sys; from ray.cluster_utils import Cluster; "
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, 'include_dashboard': False}); "
        "print('at', cluster.address, flush=True); sys.stdin.read(); cluster.shutdown()"
    )  # in a process of its own, because Ray reads the mode once
    secured = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": right}
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=secured,
                          text=True) as head:  # fmt: skip
        assert head.stdout is not None
        address = next(line.split()[1] for line in head.stdout if line.startswith("at "))
        for token, answer in ((right, "token accepted"), (wrong, "token needed")):
            monkeypatch.setenv("RAY_AUTH_TOKEN", token)
            assert answer_of(address, PATIENCE_S) == answer
        done = run_program("--no-ui", *SNAKE, "--ray", address, cwd=tmp_path, check=2)
        assert f"the cluster at {address} needs its token" in done.stderr
        head.communicate()


@pytest.mark.long
def test_an_actor_waits_for_a_core_and_takes_a_node_that_joins(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1)
    # The one that plays has a ring of 10,000 transitions, and learning begins all the same.
    with training(cluster, tmp_path, "--num-actors", "2", "--burnin", "15000") as (_, client):
        waiting = next_event(client, Members, lambda m: any(member.waits_for_core for member in m.members))
        assert [member.ready for member in waiting.members].count(True) == 1
        cluster.add_node(num_cpus=1)
        members = plays(client, 0, 1).members
        assert not any(member.waits_for_core for member in members)
        assert all(member.machine == socket.gethostname() for member in members)
        seen = next_event(client, Members, lambda m: len(m.machines) == 2 and m.wire_bytes_per_s > 0).machines
        assert all(machine.cores == psutil.cpu_count() and machine.memory_total_bytes > 0 for machine in seen)


@pytest.mark.long
def test_a_run_without_its_learner_begins_again_on_the_same_cluster(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2)
    with training(cluster, tmp_path) as (_, client):
        client.send(Checkpoint())
        saved = next_event(client, Saved)
        runner_of(the_run(tmp_path)).kill()
        next_event(client, Log, lambda log: f"restarting from {Path(saved.path).name}" in log.text)
        next_event(client, Progress, lambda p: p.state == "running" and p.env_steps > saved.env_steps)
        plays(client, 0, 1)
        assert len(actors(cluster)) == 2  # those of the lost learner are gone


@pytest.mark.long
def test_without_its_head_a_run_fails_once_and_resumes_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2)
    with training(cluster, tmp_path) as (process, client):
        client.send(Checkpoint())
        saved = next_event(client, Saved)
        head = cluster.head_node
        assert head is not None
        head.kill_gcs_server(check_alive=False)
        rest_of(process)
        assert process.returncode == 1
    reason = the_run(tmp_path).record().reason
    assert reason.startswith("the head of the Ray cluster") and "is gone" in reason
    steps = str(saved.env_steps + 500)
    done = run_program("--no-ui", "--log-format", "json", "--resume", "latest", "--ray", "none", "--steps", steps,
                       cwd=tmp_path)  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1])["env_steps"] >= saved.env_steps + 500


@pytest.mark.long
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_local_cluster_in_order(signal_number: signal.Signals, tmp_path: Path) -> None:
    with headless(*ENDLESS, "--ray", "local", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        host = psutil.Process(the_run(tmp_path).record().pid)
        ours = {child.pid for child in host.children(recursive=True)}
        process.send_signal(signal_number)
        assert rest_of(process)[-1]["event"] == "summary" and process.returncode == 0
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in ours), "the end of the cluster", PATIENCE_S)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["learner", "host"])
def test_a_local_cluster_ends_with_its_learner(victim: str, tmp_path: Path) -> None:
    with headless(*ENDLESS, "--ray", "local", "--restarts", "0", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        learner = runner_of(run)
        cluster = learner.children(recursive=True)
        agents = [each for each in cluster if each.name().endswith("Agent")]
        assert len(agents) == 2
        for agent in agents:  # which would try for a minute to tell the head that its node has ended
            agent.suspend()
        (raylet,) = (each for each in cluster if each.name() == "raylet")
        session = Path(raylet.cmdline()[1].removeprefix("--raylet_socket_name=")).parents[1]
        assert session.is_dir()
        (learner if victim == "learner" else psutil.Process(run.record().pid)).kill()
        rest_of(process)
        wait_until(lambda: not any(map(psutil.Process.is_running, cluster)), "the end of the cluster")
        assert not session.parent.exists()


MISTAKES = {
    "nobody": ("127.0.0.1:1", "--ray: nobody answers at 127.0.0.1:1 (Connection refused)"),
    "client": ("ray://127.0.0.1:10001", "--ray can't use Ray's client"),
    "no address": ("somewhere", "--ray must be one of none, local, auto, HOST:PORT, got 'somewhere'"),
    "no host": ("nowhere.invalid:6379", "--ray: nobody answers at nowhere.invalid:6379"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_address_is_one_line(mistake: str, tmp_path: Path) -> None:
    address, message = MISTAKES[mistake]
    done = run_program("--no-ui", *SNAKE, "--ray", address, cwd=tmp_path, check=2)
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "checkpoints").exists()


def test_what_is_no_cluster_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run_program("--no-ui", *SNAKE, "--ray", address, cwd=tmp_path, check=2)
    assert (
        f"what listens at {address} does not answer as a Ray cluster does" in done.stderr
        and len(done.stderr.splitlines()) == 1
    )
