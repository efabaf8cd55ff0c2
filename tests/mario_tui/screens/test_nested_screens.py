"""Screens on top of each other: a dashboard opened from the comparison of another dashboard."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.engine_command import program
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
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
@pytest.mark.process
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


async def test_nothing_is_kept_of_a_screen_that_was_left(tmp_path: Path) -> None:
    first, _ = folder_of_runs(tmp_path, **{"run-1": "finished", "run-2": "finished"})
    app = MarioApp(run_dir=str(tmp_path))
    kept: list[Any] = []

    async def note(pilot: Pilot[Any], kind: type[Screen[Any]]) -> None:
        screen = await shown_as(pilot, kind)
        await until(pilot, lambda: screen.query("FooterKey") or kind is HelpScreen, "the footer")
        kept.append(
            [weakref.ref(part) for widget in screen.walk_children(Widget) for part in (widget, widget._styles_cache)]
        )

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.screen.query("FooterKey"), "the footer")
        for _ in range(2):
            kept.append([weakref.ref(key) for key in app.screen.query("FooterKey")])
            for keys, kind in ((["?"], HelpScreen), (["n"], NewRunScreen)):
                await pilot.press(*keys)
                await note(pilot, kind)
                await pilot.press("escape")
                await shown_as(pilot, HomeScreen)
            app.open_dashboard(first)
            await note(pilot, DashboardScreen)
            await pilot.press("c")
            await note(pilot, CompareScreen)
            await pilot.press("h")
            await shown_as(pilot, HomeScreen)

        def left() -> list[object]:
            gc.collect()
            return [part() for parts in kept[: len(kept) // 2] for part in parts if part() is not None]

        await until(pilot, lambda: not left(), "the end of what the first visits drew")
