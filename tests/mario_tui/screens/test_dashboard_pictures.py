"""Pictures of the dashboard of a recorded run of Snake: in three sizes and two themes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.protocol.messages import Hello
from engine.runs.recording import read_recording
from engine.runs.run import Run
from mario_tui.app import MarioApp
from tests.support.app import record_of, until

RECORDING = Path(__file__).parents[2] / "support" / "recordings" / "snake.msgpack"
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
VIEWS = {
    "dashboard": [],
    "chart": ["4", "z", "m", "plus", "left", "left", "left", "left"],
    "actor": ["1", "down", "down", "enter"],
}


def recorded(folder: Path) -> Run:
    """A run folder that holds the recording and nothing that runs."""
    hello = read_recording(RECORDING)[0]
    assert isinstance(hello, Hello)
    run = Run(folder / hello.run)
    run.path.mkdir(parents=True)
    shutil.copy(RECORDING, run.history_path)
    run.write_record(record_of(hello.run, "finished", hello.steps, hello.steps))
    return run


@pytest.mark.parametrize("theme", ["mario", pytest.param("daylight", marks=pytest.mark.long)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_picture(snap_compare: Any, view: str, size: str, theme: str, tmp_path: Path) -> None:
    async def settle(pilot: Pilot[Any]) -> None:
        dashboard: Any = pilot.app.screen
        await until(pilot, lambda: dashboard.shown is dashboard.feed.snapshot() and dashboard.shown.end, "the run")
        await pilot.press(*VIEWS[view])
        await pilot.wait_for_scheduled_animations()

    app = MarioApp(open_run=recorded(tmp_path))
    app.theme = theme
    assert snap_compare(app, terminal_size=SIZES[size], run_before=settle)
