"""Presets and the run's name in the form of a new run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from engine.config.command_line import presets
from mario_tui.app import MarioApp
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.widgets.form_rows import Choice, PresetList
from tests.support.app import folder_of_runs, shown_as, type_at_once, until
from tests.support.form import focus, focused, form_of, shown


@pytest.mark.process
async def test_a_preset_is_chosen_with_arrows_and_its_values_are_the_defaults_of_the_fields(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        assert screen.form.preset is None
        for name in presets():
            await pilot.press("down")
            await until(pilot, lambda name=name: screen.form.preset == name, name)
            await until(pilot, lambda name=name: presets()[name].help in shown(screen, "#about"), "its line")
            assert "--runner" in shown(screen, "#row-preset .about")
        await pilot.press("down")
        assert focus(app) == "start"
        await pilot.press("up", *["up"] * list(reversed(presets())).index("apex-classic"), "f3")  # back to the last one
        await focused(pilot, "name")
        assert screen.form.preset == "apex-classic"
        assert screen.query_one("#edit-runner", Choice).value == "apex"
        assert screen.query_one("#edit-parallel_envs", Input).placeholder == "1"
        await pilot.press("f2", "home")
        await until(pilot, lambda: screen.form.preset is None, "no preset")
        assert screen.query_one("#edit-parallel_envs", Input).placeholder == "32"
        await pilot.press("end")
        await until(pilot, lambda: screen.form.preset == list(presets())[-1], "the last one")
        await pilot.press("f4")
        assert screen.form.preset is None
        assert screen.query_one(PresetList).value == "none"
        assert await pilot.click("#edit-preset", offset=(5, 1))
        await until(pilot, lambda: screen.form.preset == "parallel-classic", "the one that was clicked")


@pytest.mark.long
async def test_the_name_is_validated_while_it_is_typed_and_is_the_runs(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path / "runs", first="finished")
    app = MarioApp(run_dir=str(runs[0].path.parent))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        type_at_once(app, *"first")
        await until(pilot, lambda: "exists already; choose another name" in shown(screen, "#about"), "the reason")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "Not started: --name" in shown(screen, "#about"), "the answer")
        assert app.screen is screen
        type_at_once(app, "/")
        await until(pilot, lambda: "got 'first/'" in shown(screen, "#about"), "the other reason")
        await pilot.press("backspace", "2")
        await until(pilot, lambda: "✗" not in shown(screen, "#about"), "a good name")
        assert "--name=first2" in shown(screen, "#command")
        screen.query_one("#edit-steps", Input).value = "1000"
        await pilot.press("ctrl+r")
        await shown_as(pilot, DashboardScreen)
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert (tmp_path / "runs" / "first2" / "config.toml").is_file()
