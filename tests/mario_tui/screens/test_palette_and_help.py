"""The command palette, the help and the bindings of all screens, which come from one table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Static

from mario_tui.app import MarioApp
from mario_tui.data.keys import KEYS, PLACES, Place, keys_in, shown_name
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import ConfirmScreen, HelpScreen, TextScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import folder_of_runs, shown_as, until
from tests.support.program import FinishedRun


async def screens(app: MarioApp, pilot: Pilot[Any]) -> dict[Place, Any]:
    """Every kind of screen, one after the other, with the keys that lead there."""
    found: dict[Place, Any] = {}
    for place, there in (("home", ""), ("form", "n"), ("compare", "c"), ("dashboard", "enter")):
        if there:
            await pilot.press(there)
            await until(pilot, lambda: not isinstance(app.screen, HomeScreen), place)
        found[place] = app.screen  # type: ignore[index]
        if there:
            await pilot.press("escape")
            assert isinstance(app.screen, HomeScreen)
    return found


@pytest.mark.long
async def test_help_palette_and_bindings_agree(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, one="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        found = await screens(app, pilot)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        help = "\n".join("".join(s.text for s in line) for line in app.console.render_lines(
            app.screen.query_one("#keys", Static).visual._renderable, app.console.options.update_width(100)  # type: ignore[attr-defined]
        ))  # fmt: skip
        for place in PLACES:
            for key in keys_in(place):
                line = next(line for line in help.splitlines() if line.strip().endswith(key.help))
                assert line.split("  ")[0] == shown_name(key)
        await pilot.press("escape")
        for place, screen in found.items():
            bound = {
                (binding.action, binding.key)
                for binding in screen._bindings.key_to_bindings.values()
                for binding in binding
            }
            table = {(key.action, name) for key in keys_in(place) for name in key.keys.split(",")}
            assert {pair for pair in bound if not pair[0].startswith(("app.", "screen."))} >= table
            offered = [(command.title, command.help) for command in app.get_system_commands(screen)]
            for key in (*keys_in(place), *keys_in("everywhere")):
                command = (key.label, f"{key.help} · [b]{shown_name(key)}[/b]")
                available = key.action != "command_palette" and screen.check_action(key.action, ())
                assert (command in offered) is bool(available)
    assert {key.place for key in KEYS} == set(PLACES)


@pytest.mark.parametrize(
    ("words", "screen"),
    [("new run", NewRunScreen), ("compare", CompareScreen), ("copy", TextScreen), ("delete", ConfirmScreen)],
)
async def test_the_palette_does_it(words: str, screen: type, tmp_path: Path) -> None:
    folder_of_runs(tmp_path, one="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press(*words)
        await until(pilot, lambda: app.screen.query_one("#--container").query("CommandList"), "the list")
        await until(pilot, lambda: app.screen.query_one("CommandList").option_count, "a hit")  # type: ignore[attr-defined]
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, screen), words)


@pytest.mark.long
@pytest.mark.process
async def test_every_command_of_the_palette_runs_on_its_screen(finished_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(finished_run.run.path, tmp_path / "runs" / "one")
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        home: Any = app.screen
        for command in list(app.get_system_commands(home)):
            if command.title not in ("Quit", "Resume"):  # they leave; tested elsewhere
                command.callback()
                await pilot.pause()
                await until(pilot, lambda: home.job is None, command.title)
                while app.screen is not home:
                    app.pop_screen()
        await pilot.press("c")
        compare = await shown_as(pilot, CompareScreen)
        for command in list(app.get_system_commands(compare)):
            if app.screen is compare and command.title != "Quit":
                command.callback()
                await pilot.pause()
                if isinstance(app.screen, HelpScreen | DashboardScreen):
                    app.pop_screen()
        assert app.screen is home  # Back and Home lead there


async def test_a_read_only_program_names_no_key_that_changes_something(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, one="finished")
    app = MarioApp(run_dir=str(tmp_path), read_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), "the help")
        (here,) = (keys for title, keys in app.screen._parts() if title == "Home")  # type: ignore[attr-defined]
        named = [help for _, help in here]
        assert named and not {key.help for key in keys_in("home") if key.changes} & {*named}
