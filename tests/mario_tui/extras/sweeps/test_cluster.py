"""Sweeps whose runs are placed on the nodes of a Ray cluster, which are killed meanwhile."""

from __future__ import annotations

import os
import re
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
from engine.console.compiler.code_cache import code_cache
from engine.errors import UserError
from engine.runs.checkpoints import committed, read_manifest
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.extras.sweeps.node import PACKAGE, own_folder
from mario_tui.extras.sweeps.options import check_runs
from tests.support.program import kill_hosts, nobody_is_left, run_program, wait_until
from tests.support.ray_cluster import Cluster, ray_cluster, raylet_of
from tests.support.sweeps import SNAKE, status, tries_of

OPTIONS = (*SNAKE, "--no-amp", "--batch-size", "64", "--save-every", "500", "--eval-every", "0", "--name", "placed")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as started:
        yield started


def has_trained(sweep: Sweep, number: int, steps: int) -> bool:
    run = sweep.run(number)
    return run.record_path.exists() and run.record().env_steps >= steps and bool(committed(run))


def log_of(sweep: Sweep, wanted: str) -> re.Match[str]:
    """Wait for a line in the sweep's log."""
    found: re.Match[str] = wait_until(lambda: re.search(wanted, sweep.log_path.read_text()), wanted)
    return found


def hosts_of(node: Any) -> list[psutil.Process]:
    return [each for each in raylet_of(node).children(recursive=True) if "engine.host" in each.cmdline()]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--ray", "local"), "--ray must be one of none, auto, HOST:PORT, got 'local'"),
        (("--ray", "127.0.0.1:1"), "--ray: nobody answers at 127.0.0.1:1"),
        (("--vary", "ray=auto,none"), "--ray can't vary; use --ray"),
    ],
)  # fmt: skip
@pytest.mark.process
def test_without_a_cluster_nothing_is_begun(arguments: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    done = run_program("sweep", *OPTIONS, "--seeds", "2", *arguments, cwd=tmp_path, check=2)
    assert reason in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "checkpoints").exists()


def test_a_cluster_chooses_the_gpu_of_a_run() -> None:
    members = tuple(Member({"device": device}, 0) for device in ("cuda", "cuda:1"))
    plan = SweepPlan(options={"game": "snake"}, jobs=None, threads=1, members=members, ray="auto")
    with pytest.raises(UserError, match=r"--device must be auto, cpu, mps or cuda with --ray, .* got 'cuda:1'"):
        check_runs(plan, plan.settings, Path())


def test_what_other_runs_of_a_node_left_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parent, machine = tmp_path / "mario-tui" / "sweeps", socket.gethostname()
    gone, own = 2**31 - 1, os.getpid()
    (parent / f"{machine}.{own}" / "run").mkdir(parents=True)
    (parent / f"other.{gone}").mkdir()
    (parent / f"{machine}.foreign").mkdir()
    (parent / f"{machine}.{gone}").touch()
    assert own_folder() == parent / f"{machine}.{own}" and not any(own_folder().iterdir())
    assert (parent / f"other.{gone}").is_dir()


def test_a_machine_with_other_sources_of_either_package_is_told_apart(tmp_path: Path) -> None:
    for name in ("here", "there"):
        shutil.copytree(PACKAGE / "data", tmp_path / name)
    from engine.extras.ray.greeting import difference, greeting

    assert difference(greeting("", tmp_path / "there"), greeting("", tmp_path / "here")) == ""
    shutil.copytree(tmp_path / "there", tmp_path / "changed")
    (tmp_path / "changed" / "feed.py").write_text("")
    found = difference(greeting("", tmp_path / "changed"), greeting("", tmp_path / "here"))
    assert found.endswith("has other sources than this machine")


@pytest.mark.long
@pytest.mark.process
def test_runs_of_a_lost_node_resume_on_another(cluster: Cluster, tmp_path: Path) -> None:
    """Two nodes, each with two cores and what counts as a GPU; one is killed, then the queue. Ray is left at last."""
    nodes = [cluster.add_node(num_cpus=2, num_gpus=1) for _ in range(2)]
    run_program("sweep", *OPTIONS, "--steps", "100000000", "--seeds", "3", "--ray", cluster.address, cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "placed")
    wait_until(lambda: has_trained(sweep, 0, 600) and has_trained(sweep, 1, 600), "two runs to train")
    assert [len(hosts_of(node)) for node in nodes] == [1, 1]
    assert status("placed", tmp_path)["states"] == {"running": 2, "waiting": 1}
    assert sweep.run(0).config().threads == 1

    lost = next(node for node in nodes if hosts_of(node)[0].pid == sweep.run(0).record().pid)
    cluster.remove_node(lost, allow_graceful=False)
    log_of(sweep, "placed-001 was lost on .*: its node does not answer")
    cluster.add_node(num_cpus=2, num_gpus=1)
    found = log_of(sweep, f"placed-001 started again, from (step-[0-9]+), on {socket.gethostname()}")
    done = int(found[1].removeprefix("step-"))
    assert done >= 500
    wait_until(lambda: has_trained(sweep, 0, done + 200), "the first run to train again")
    assert [tries_of(sweep, f"placed-00{number}") for number in (1, 2)] == [1, 1]

    queue = sweep.queue_pid()
    assert queue
    os.kill(queue, signal.SIGKILL)
    nobody_is_left(sweep.path)  # its runs end with it
    run_program("sweep", "resume", "placed", "--ray", cluster.address, cwd=tmp_path)
    wait_until(lambda: status("placed", tmp_path)["states"].get("running") == 2, "two runs to train")
    run_program("sweep", "stop", "placed", cwd=tmp_path)
    nobody_is_left(sweep.path)
    assert status("placed", tmp_path)["states"] == {"stopped": 2, "waiting": 1}

    before = [read_manifest(committed(sweep.run(number))[-1]).env_steps for number in range(2)]
    run_program("sweep", "resume", "placed", "--ray", "none", cwd=tmp_path)
    wait_until(lambda: all(has_trained(sweep, number, before[number] + 1) for number in range(2)), "two runs to train")
    run_program("sweep", "stop", "placed", cwd=tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "before", "after", "told"),
    [
        ("errors.py", "class UserError", "# changed\nclass UserError", "has other sources than this machine"),
        ("extras/ray/greeting.py", "    python: str", "    language: str", "has another version of mario-tui"),
    ],
)
@pytest.mark.process
def test_nodes_with_other_sources_or_without_the_program_are_named_and_not_used(
    module: str, before: str, after: str, told: str, cluster: Cluster, tmp_path: Path
) -> None:
    shutil.copytree(Path(engine.__file__).parent, tmp_path / "other" / "engine")
    changed = tmp_path / "other" / "engine" / module
    changed.write_text(changed.read_text().replace(before, after))
    other = cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path / "other")})
    run_program("sweep", *OPTIONS, "--steps", "300", "--seeds", "2", "--ray", cluster.address, cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "placed")
    run_program("sweep", "wait", "placed", cwd=tmp_path, check=1)
    log_of(sweep, f"the queue ends: --ray: .* {told}; install the same on every node")
    assert status("placed", tmp_path)["states"] == {"waiting": 2}

    cluster.remove_node(other)
    (tmp_path / "without" / "mario_tui").mkdir(parents=True)
    (tmp_path / "without" / "mario_tui" / "__init__.py").write_text("raise ImportError('a part is missing')")
    cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path / "without")})
    cluster.add_node(num_cpus=1)
    run_program("sweep", "resume", "placed", cwd=tmp_path)
    run_program("sweep", "wait", "placed", cwd=tmp_path)
    log_of(sweep, r"was not started: node \w+ can't start a process of mario-tui \(ImportError: a part is missing\)")
    assert [tries_of(sweep, f"placed-00{number}") for number in (1, 2)] == [1, 1]


@pytest.mark.long
@pytest.mark.process
def test_a_search_waits_for_a_node(cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    run_program(
        "sweep", *OPTIONS, "--eval-every", "100", "--eval-episodes", "2", "--steps", "300", "--vary", "n-step=1..3",
        "--sample", "2", "--search", "tpe", "--ray", cluster.address, cwd=tmp_path,
    )  # fmt: skip
    sweep = Sweep(tmp_path / "checkpoints" / "placed")
    log_of(sweep, "no node of the cluster has 1 core; the runs wait for one")
    cluster.add_node(num_cpus=1)
    run_program("sweep", "wait", "placed", cwd=tmp_path)
    assert status("placed", tmp_path)["states"] == {"finished": 2}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("unshare"), reason="needs Linux's unshare")
@pytest.mark.process
def test_a_folder_that_a_node_does_not_see_is_copied(cluster: Cluster, tmp_path: Path) -> None:
    """Nodes with another name and another disk in the place of the sweep's; one is killed, another one goes on."""
    (tmp_path / "checkpoints").mkdir()
    sweep = Sweep(tmp_path / "checkpoints" / "placed")
    apart = 'hostname "$0" && mount -t tmpfs none "$1" && shift && exec "$@"'
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "MARIO_TUI_CODE": str(code_cache())}

    def add_node(name: str) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        return subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "--uts", "sh", "-c", apart, name, str(sweep.path.parent),
             ray, "start", f"--address={cluster.address}", "--num-cpus=1", "--block"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    nodes = [add_node("far")]
    try:
        run_program("sweep", *OPTIONS, "--steps", "100000000", "--seeds", "1", "--ray", cluster.address, cwd=tmp_path)
        log_of(sweep, "placed-001 started, on far, which does not see this folder: it is copied")
        wait_until(lambda: has_trained(sweep, 0, 500), "a copied checkpoint")
        assert sweep.run(0).record().host == "far" and status("placed", tmp_path)["states"] == {"running": 1}

        nodes.append(add_node("farther"))
        for process in psutil.Process(nodes[0].pid).children(recursive=True):
            process.kill()
        found = log_of(sweep, "placed-001 started again, from (step-[0-9]+), on farther")
        done = int(found[1].removeprefix("step-"))

        def trains_again() -> bool:  # the record that was copied from the first node may be ahead of its checkpoint
            return sweep.run(0).record().host == "farther" and committed(sweep.run(0))[-1].name > found[1]

        wait_until(trains_again, "the run to train again")
        run_program("sweep", "stop", "placed", cwd=tmp_path)
        assert status("placed", tmp_path)["states"] == {"stopped": 1}
        assert read_manifest(committed(sweep.run(0))[-1]).env_steps == sweep.run(0).record().env_steps > done
        left = tmp_path / "cache" / "mario-tui" / "sweeps"
        wait_until(lambda: [each.name.split(".")[0] for each in left.iterdir()] == ["far"], "the copy's removal")

        for process in psutil.Process(nodes[1].pid).children(recursive=True):
            process.kill()
        cluster.add_node(num_cpus=1)  # sees the folder
        run_program("sweep", "resume", "placed", cwd=tmp_path)
        log_of(sweep, f"placed-001 started again, from step-[0-9]+, on {socket.gethostname()}\n")
        wait_until(lambda: status("placed", tmp_path)["states"] == {"running": 1}, "the run to train here")
        run_program("sweep", "stop", "placed", cwd=tmp_path)
    finally:
        for node in nodes:
            for process in psutil.Process(node.pid).children(recursive=True):
                process.kill()
            node.kill()
            node.wait()
        kill_hosts(tmp_path)
