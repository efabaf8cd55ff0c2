"""The dashboard of a run of several processes, and the split of its time, on a real run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.reading import make_config
from engine.host.client import HostProcess
from engine.protocol.commands import Stop
from engine.protocol.messages import Machine, Member, Members, System
from engine.runners.coordination.stats import Counters
from engine.runs.checkpoints import newest
from engine.runs.registry import create_run
from mario_tui.app import MarioApp
from mario_tui.data.run_status import RunStatus, Snapshot
from mario_tui.launch import make_plan
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.widgets.panels.machine import MachinePanel, ProcessesPanel
from tests.support.app import until
from tests.support.program import PATIENCE_S


def shown(dashboard: DashboardScreen, panel: str) -> str:
    """What a panel shows."""
    return str(dashboard.query_one(f"#{panel}").render())


def start(folder: Path, **options: Any) -> HostProcess:
    """A run of small Snake that ends only when it is told to."""
    config = make_config(
        {"game": "snake", "board": "5x5", "burnin": 500, "batch_size": 32, "parallel_envs": 4, "steps": 100_000_000,
         "eval_every": 0, "run_dir": str(folder), **options}
    )  # fmt: skip
    return HostProcess(create_run(config))


@pytest.mark.long
@pytest.mark.process
async def test_processes_and_the_split_of_time_are_shown(tmp_path: Path) -> None:
    host = start(tmp_path, runner="apex")
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(120, 60)) as pilot:
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        assert "Processes" not in shown(dashboard, "processes")  # a run of one process has none to show
        await until(pilot, lambda: "samples/s, ratio" in shown(dashboard, "processes"), "learning")
        lines = shown(dashboard, "processes").splitlines()
        assert "b Processes" in lines[0]
        assert [line.split()[0] for line in lines[1:4]] == ["actor", "0", "1"]
        assert "samples/s" in lines[4] and "learner waits" in lines[5]
        await pilot.press("i")
        for part in ("forward", "actor 1"):
            await until(pilot, lambda part=part: part in shown(dashboard, "time"), part)
        assert dashboard.feed.send(Stop())
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert host.process.wait(PATIENCE_S) == 0


@pytest.mark.long
@pytest.mark.process
async def test_who_watches_a_run_sees_it_go_on_after_its_host_was_killed(tmp_path: Path) -> None:
    host = start(tmp_path, save_every=1000)
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        await until(pilot, lambda: newest(host.run), "a checkpoint")
        host.process.kill()
        await until(pilot, lambda: "? lost" in shown(dashboard, "header"), "the loss")
        assert "– steps/s" in shown(dashboard, "header")
        host.process.wait()
        await until(pilot, lambda: dashboard.feed.snapshot().status is RunStatus.LOST, "a look without its host")
        again = make_plan({}, resume=str(host.run.path)).start()
        await until(pilot, lambda: "● running" in shown(dashboard, "header"), "the run under its next host")
        assert dashboard.feed.send(Stop())  # as another client would
        await until(pilot, lambda: dashboard._is_stopping() or dashboard.feed.snapshot().end, "stopping")
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert again.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("width", [38, 58])
def test_actors_of_a_cluster_are_shown_with_their_machines(width: int) -> None:
    first = Member(
        role="actor", index=0, ready=True, lanes=4, env_steps=100, env_steps_per_s=250.0, episodes=3, mean_return=1.5,
        epsilon_high=0.5, epsilon_low=0.1, restarts=1, lag=12, waiting_percent=7.0, machine="node-1",
    )  # fmt: skip
    waiting = msgspec.structs.replace(first, index=1, ready=False, machine="", waits_for_core=True)
    node = Machine(
        name="node-2", cores=16, cpu_percent=61.0, memory_used_bytes=2**33, memory_total_bytes=2**36, gpus=[]
    )
    members = Members(
        members=[first, waiting], inserts_per_s=250.0, samples_per_s=1000.0, ratio=4.0, learner_waiting_percent=30.0,
        wire_bytes_per_s=150_000.0, machines=[node],
    )  # fmt: skip
    progress = Counters().report(
        state="running", steps=1000, updates=1, epsilon=0.1, random_share=0.1, learning_rate=0.1, replay_size=1,
        replay_capacity=2,
        beta=0.4, burnin_left=0,
    )  # fmt: skip
    snapshot = Snapshot(members=members, progress=progress, connected=True)
    shown = ProcessesPanel().compose_text(snapshot, width).plain
    assert "1      waits for a core, lost 1 time" in shown
    assert "learner waits 30%, 150kB/s, 1 machine" in shown
    assert max(map(len, shown.splitlines())) <= width
    system = System(
        cpu_percent=[50.0], memory_used_bytes=1, memory_total_bytes=2, run_cpu_percent=1.0, run_memory_bytes=1,
        processes=1, gpus=[], gpu_note="",
    )  # fmt: skip
    machines = MachinePanel().compose_text(dataclasses.replace(snapshot, system=system), width).plain
    assert "node-2" in machines and "61% of 16  8.0/64.0G" in machines
