"""Screens on top of each other: a dashboard opened from the comparison of another dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.program import program
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.home import HomeScreen
from tests.support.app import folder_of_runs, shown_as, until
from tests.support.source import serving


async def to_the_other_dashboard(pilot: Pilot[Any], run: Run) -> None:
    """From a dashboard through its comparison to the dashboard of another run."""
    app = pilot.app
    await pilot.press("c")
    await shown_as(pilot, CompareScreen)
    await pilot.press("down", "enter")
    await shown_as(pilot, DashboardScreen)
    assert app.screen.run.path == run.path  # type: ignore[attr-defined]


async def test_h_goes_to_the_list_of_runs_from_any_depth_and_escape_one_screen_back(tmp_path: Path) -> None:
    first, second = folder_of_runs(tmp_path, **{"run-1": "finished", "run-2": "finished"})
    app = MarioApp(first, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await to_the_other_dashboard(pilot, second)
        await pilot.press("escape")
        await shown_as(pilot, CompareScreen)
        await pilot.press("enter")
        await shown_as(pilot, DashboardScreen)
        await pilot.press("h")
        await shown_as(pilot, HomeScreen)
        app.open_dashboard(first)
        await pilot.press("c")
        await shown_as(pilot, CompareScreen)
        await pilot.press("h")
        await shown_as(pilot, HomeScreen)
        assert sum(isinstance(screen, HomeScreen) for screen in app.screen_stack) == 1


@pytest.mark.long
async def test_q_after_a_visit_to_another_run_says_that_the_run_keeps_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "served") as run:
        (other,) = folder_of_runs(run.path.parent, other="finished")
        app = MarioApp(run, run_dir=str(run.path.parent))
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.screen.feed.snapshot().live, "the run")  # type: ignore[attr-defined]
            await to_the_other_dashboard(pilot, other)
            await pilot.press("escape", "escape")
            assert isinstance(app.screen, DashboardScreen)
            await pilot.press("c")
            await shown_as(pilot, CompareScreen)
            await pilot.press("q")
        assert app._print_outcome() == 0
    assert f"{run.name} keeps running. Reattach with: {program()} attach {run.name}" in capsys.readouterr().out
