"""Helpers for the application under Textual's pilot: waiting, typing, reading the screen."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.host.client import HostProcess
from engine.protocol.framing import pack
from engine.protocol.messages import Evaluation, Hello, KeptEvent, Point, Progress
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from engine.runs.run import Run, RunRecord
from mario_tui.app import MarioApp
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.widgets.runs_table import RunsTable
from tests.support import warm_start
from tests.support.program import PATIENCE_S, Hope, somebody_works

S = TypeVar("S", bound=Screen[Any])
RECORDING = Path(__file__).parent / "recordings" / "dashboard.msgpack"


async def until(pilot: Pilot[Any], condition: Any, what: str) -> Any:
    """Let the app run until a condition holds. Fails soon if all processes of the test have ended without it, or if
    there is none and what the app shows no longer changes."""
    hope, shown = Hope(what), ""

    def can_come() -> bool:
        nonlocal shown
        before, shown = shown, said(pilot.app)
        return shown != before or (warm_start.has_started and somebody_works())

    for _ in range(int(PATIENCE_S / 0.05)):
        value = condition()
        if value:
            return value
        assert pilot.app.is_running, f"the application has ended without: {what}"
        hope.check(can_come)
        await pilot.pause(0.05)
    raise AssertionError(
        f"waited {PATIENCE_S:.0f} s for: {what}; {pilot.app.screen} is shown, and says: {said(pilot.app)}"
    )


def too_small(app: App[Any]) -> str:
    """What covers a terminal that is too small; empty when nothing does."""
    return "".join(str(widget.render()) for widget in app.screen.query("#too-small"))


def type_at_once(app: MarioApp, *keys: str) -> None:
    """Send keys that all arrive before the first of them is handled, as over a slow link."""
    assert app._driver is not None
    for key in keys:
        event = events.Key(key, key if len(key) == 1 else None)
        event.set_sender(app)
        app._driver.send_message(event)


def start(tmp_path: Path, **options: Any) -> HostProcess:
    run = create_run(RunConfig.of(run_dir=str(tmp_path / "checkpoints"), parallel_envs=2, **options))
    return HostProcess(run)


def recorded_run(folder: Path) -> Run:
    """A run folder with a recording and no processes."""
    hello = read_recording(RECORDING)[0]
    assert isinstance(hello, Hello)
    progress = next(event for event in read_recording(RECORDING) if isinstance(event, Progress))
    run = Run(folder / hello.run)
    run.path.mkdir(parents=True)
    shutil.copy(RECORDING, run.history_path)
    run.write_record(record_of(hello.run, "finished", progress.env_steps, hello.steps))
    return run


def record_of(name: str, state: Any, env_steps: int, steps: int) -> RunRecord:
    return RunRecord(
        name=name, game="mario", task="1-1", runner="single", state=state, steps=steps, created_at=1.79e9 + env_steps,
        updated_at=1.79e9, env_steps=env_steps, wall_s=env_steps / 200, mean_return=500 + env_steps / 1000,
    )  # fmt: skip


def folder_of_runs(folder: Path, **states: str) -> list[Run]:
    """Runs with these names and states, each with a recording; the first one is the oldest."""
    runs = []
    for index, (name, state) in enumerate(states.items()):
        run = Run(folder / name)
        run.path.mkdir(parents=True)
        record = record_of(name, state, 10_000 * (index + 1), 2_000_000)
        record.created_at = 1.79e9 + index
        run.write_record(record)
        shutil.copy(RECORDING, run.history_path)
        (run.path / "config.toml").write_text(make_config({"seed": index}).to_toml())
        runs.append(run)
    return runs


def write_recording(run: Run, points: list[Point], evaluated: list[float]) -> None:
    """A recording of these points, with evaluations of which the first one is the best."""
    hello = read_recording(RECORDING)[0]
    assert isinstance(hello, Hello)
    events: list[KeptEvent] = [
        Evaluation(
            env_steps=1000 * at, episodes=10, clears=0, mean_return=value, best=at == 1, seconds=1.0, results=(42.0,)
        )
        for at, value in enumerate(evaluated, 1)
    ]
    run.history_path.write_bytes(pack(msgspec.structs.replace(hello, points=points, events=events)))


def hold(run: Run) -> BinaryIO:
    """Lock a run as its host does."""
    file = (run.path / "run.lock").open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def table_of(app: MarioApp) -> RunsTable:
    return app.screen.query_one(RunsTable)


async def shown_as(pilot: Pilot[Any], kind: type[S]) -> S:
    """The screen, as soon as it is of this kind and has its widgets: some are shown once their data are read."""

    def shown() -> S | None:
        screen = pilot.app.screen
        return screen if isinstance(screen, kind) and screen.is_mounted else None

    screen: S = await until(pilot, shown, kind.__name__)
    return screen


def names(app: MarioApp) -> list[str]:
    """The names of the runs in the table, in its order."""
    table = table_of(app)
    column = [str(key.value) for key in table.columns].index("run")
    return [str(table.get_row_at(row)[column]) for row in range(table.row_count)]


def said(app: App[Any]) -> str:
    return " ".join(str(notice.message) for notice in app._notifications)


async def opened(pilot: Pilot[Any]) -> Any:
    """The dashboard as soon as every panel has something to show."""
    dashboard: Any = pilot.app.screen
    assert isinstance(dashboard, DashboardScreen)
    await until(pilot, lambda: dashboard.shown.lanes and dashboard.shown.points and dashboard.shown.system, "the run")
    await until(pilot, lambda: "steps/s" in text(dashboard, "header"), "the panels")
    return dashboard


def text(dashboard: Any, panel: str) -> str:
    """The text of a panel."""
    return str(dashboard.query_one(f"#{panel}").render())


def app_is_there(dashboard: Any) -> bool:
    """Whether no other screen lies over the dashboard."""
    return dashboard.app.screen is dashboard
