"""The dashboard of a run of several processes, and the split of its time, on a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config.run_config import make_config
from engine.host.client import HostProcess
from engine.protocol.messages import Stop
from engine.runs.checkpoints import newest
from engine.runs.registry import create_run
from mario_tui.app import MarioApp
from mario_tui.launch import make_plan
from mario_tui.screens.dashboard import DashboardScreen
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
async def test_processes_and_the_split_of_time_are_shown(tmp_path: Path) -> None:
    host = start(tmp_path, runner="apex")
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(120, 60)) as pilot:
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        assert "Processes" not in shown(dashboard, "processes")  # a run of one process has none to show
        await until(pilot, lambda: "samples/s, ratio" in shown(dashboard, "processes"), "learning")
        lines = shown(dashboard, "processes").splitlines()
        assert "n Processes" in lines[0]
        assert [line.split()[0] for line in lines[1:4]] == ["actor", "0", "1"]
        assert "learner waits" in lines[4]
        await pilot.press("i")
        for part in ("forward", "actor 1"):
            await until(pilot, lambda part=part: part in shown(dashboard, "time"), part)
        assert dashboard.feed.send(Stop())
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert host.process.wait(PATIENCE_S) == 0


@pytest.mark.long
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
        await until(pilot, lambda: dashboard._was_gone, "a look at the run without its host")
        again = make_plan({}, resume=str(host.run.path)).start()
        await until(pilot, lambda: "● running" in shown(dashboard, "header"), "the run under its next host")
        assert dashboard.feed.send(Stop())  # as another client would
        await until(pilot, lambda: dashboard._is_stopping() or dashboard.feed.snapshot().end, "stopping")
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert again.process.wait(PATIENCE_S) == 0
