"""The dashboard under Textual's pilot: every key and what the mouse does, on a run that is served on a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from textual.widgets import Input

from engine.protocol.messages import Changed, Evaluation
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.keys import PANEL_KEYS
from mario_tui.screens import panel_grid
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import ActorScreen, TuneScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.panels.game import GameView
from tests.support.app import app_is_there, opened, said, shown_as, text, until
from tests.support.source import serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of 40 lanes that goes on while these tests look at it."""
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, "--rate", "50", "--lanes", "40", "--history", "20000") as run:
        yield run


def in_sight(dashboard: Any) -> set[str]:
    """Panels that have a place on the screen."""
    return {panel.id for panel in dashboard.panels if panel.is_on_screen and panel.size.area}


def footer(dashboard: Any) -> str:
    return "  ".join(f"{key.key_display} {key.description}" for key in dashboard.query("FooterKey"))


# ---------------------------------------------------------------------------------------------- panels


@pytest.mark.long
async def test_a_digit_chooses_a_panel_and_z_gives_it_the_screen(served: Run) -> None:
    app = MarioApp(open_run=served)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        everything = in_sight(dashboard)
        assert everything == {panel.id for panel in dashboard.panels} - {"game", "processes", "time", "curriculum"}
        for number, panel in enumerate(dashboard.panels[:8], 1):
            await pilot.press(str(number))
            assert dashboard.focused is panel
            assert text(dashboard, panel.id).startswith(f"━ {number} {panel.title}")  # a heavy rule, not only a colour
            await pilot.press("z")
            await until(pilot, lambda panel=panel: in_sight(dashboard) == {panel.id}, f"{panel.id} alone")
            assert panel.size.height == 40 - 3
            await pilot.press("z")
            await until(pilot, lambda: in_sight(dashboard) == everything, "all panels again")
        await pilot.press("1", "tab")
        assert dashboard.focused is not dashboard.actors
        await pilot.press("3", "z", "4")  # from one maximised panel to another
        await until(pilot, lambda: in_sight(dashboard) == {"chart-return"}, "the other one alone")
        await pilot.press("tab")
        await until(pilot, lambda: in_sight(dashboard) == {"chart-loss"}, "the next one alone")
        await pilot.press("escape")
        await until(pilot, lambda: in_sight(dashboard) == everything, "all panels again")
        await pilot.press("5", "enter")
        await until(pilot, lambda: in_sight(dashboard) == {"chart-loss"}, "a chart opened by Enter")
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, HomeScreen)


@pytest.mark.long
async def test_hidden_panels_come_back_by_their_digit_and_are_remembered(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await pilot.press("3", "w", "8", "w", "2", "w")
        await until(pilot, lambda: not in_sight(dashboard) & {"machine", "log", "replay"}, "three panels less")
        await pilot.press("2")
        await until(pilot, lambda: "replay" in in_sight(dashboard), "one of them again")
        await pilot.press("5", "l", "m", "t", "o", "O")
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await until(pilot, lambda: dashboard.view.axis == "time", "the axis after a new start")
        assert [chart.logarithmic for chart in dashboard.charts] == [False, True, False]
        assert dashboard.view.smoothing == 0.6
        assert (dashboard.actors.sort, dashboard.actors.reverse) == ("last", True)
        assert not in_sight(dashboard) & {"machine", "log"}
        await pilot.press("W")
        await until(pilot, lambda: in_sight(dashboard) >= {"machine", "log"}, "all of them")


async def test_a_maximised_panel_is_not_remembered_and_its_key_restores_it(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await until(pilot, lambda: "z Max" in footer(dashboard), "the key")
        await pilot.press("8", "z")
        await until(pilot, lambda: "z Restore" in footer(dashboard), "what it does now")
        await pilot.press("W", "8", "z")
        await until(pilot, lambda: in_sight(dashboard) == {"log"}, "the log alone")
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await until(pilot, lambda: len(in_sight(dashboard)) > 3, "all panels")
        await until(pilot, lambda: "z Max" in footer(dashboard), "the key")


async def test_a_panel_that_has_nothing_to_show_never_takes_the_screen(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        everything = in_sight(dashboard)
        assert "actors" in everything
        await pilot.press("b", "tab")
        await until(pilot, lambda: "Processes: nothing to show" in said(pilot.app), "the reason")
        assert in_sight(dashboard) == everything
        for _ in range(2):  # hidden by w, it comes back by g
            await pilot.press("g")
            await until(pilot, lambda: "game" in in_sight(dashboard), "the game")
            await pilot.press("9", "w")
            await until(pilot, lambda: "game" not in in_sight(dashboard), "no game")


async def test_hiding_a_whole_column_leaves_no_gap(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        for number in "123":
            await pilot.press(number, "w")
        await until(pilot, lambda: dashboard.charts[0].size.width == 80, "charts on the whole width")
        await pilot.press("7")  # no room for it among the others
        await until(pilot, lambda: in_sight(dashboard) == {"evaluations"}, "the evaluations, alone")
        assert "★ best" in text(dashboard, "evaluations")


def test_what_was_remembered_may_be_damaged(tmp_path: Path) -> None:
    for content in (
        b"",
        b"{",
        b'{"axis": "furlongs"}',
        b'{"smoothing": 0.123, "hidden": []}',
        b'{"sort": "shoe size"}',
    ):
        panel_grid.layout_file("dashboard").parent.mkdir(parents=True, exist_ok=True)
        panel_grid.layout_file("dashboard").write_bytes(content)
        assert panel_grid.recall("dashboard") == panel_grid.Remembered()
    panel_grid.remember("dashboard", panel_grid.Remembered(hidden=["log"]))
    assert panel_grid.recall("dashboard").hidden == ["log"]


# ---------------------------------------------------------------------------------------------- actors


async def test_actors_are_ordered_by_key_and_by_mouse_and_open(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        actors = dashboard.actors
        assert text(dashboard, "actors").splitlines()[1].strip().startswith("lane▲")
        await until(pilot, lambda: "1–5 of 40" in text(dashboard, "actors"), "the layout")
        await pilot.press("1", "O")
        assert actors.selected.lane == 0  # the cursor has its lane before the first move
        await pilot.press("O", "end")
        assert actors.selected.lane == 39
        assert "of 40" in text(dashboard, "actors")
        assert text(dashboard, "actors").splitlines()[-1].strip().startswith("0.39")
        await pilot.press("home", "pagedown")
        assert 2 <= actors.selected.lane <= 5
        await pilot.press("home", "down", "down", "up")
        assert actors.selected.lane == 1
        await pilot.press("o")
        returns = [lane.last_return for lane in actors.rows]
        assert returns == sorted(returns, reverse=True)
        assert actors.selected.lane == 1  # the cursor stays with its lane
        await pilot.press("O")
        returns = [lane.last_return for lane in actors.rows]
        assert returns == sorted(returns)
        await pilot.click(actors, offset=(2, 1))
        assert (actors.sort, actors.reverse) == ("lane", False)
        await pilot.click(actors, offset=(2, 1))
        assert [lane.lane for lane in actors.rows] == list(range(39, -1, -1))
        await pilot.click(actors, offset=(3, 4))
        chosen = actors.selected.lane
        await until(pilot, lambda: dashboard.feed.episodes_of(0, chosen), "an episode of the lane")
        await until(pilot, lambda: actors.selected.episodes > 1, "statistics of several episodes")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen.query("#actor"), "the lane")
        assert isinstance(pilot.app.screen, ActorScreen)
        shown = str(pilot.app.screen.query_one("#actor").render())
        assert "episodes, epsilon" in shown
        assert "at step" in shown
        await pilot.press("escape")
        assert app_is_there(dashboard)
        await pilot.click(actors, offset=(3, 4), times=2)
        await shown_as(pilot, ActorScreen)


# ---------------------------------------------------------------------------------------------- commands


async def test_numbers_are_checked_at_the_field_and_changed(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        await pilot.press("e")
        await until(pilot, lambda: pilot.app.screen.query("#learning_rate"), "the dialog")
        dialog = pilot.app.screen
        assert isinstance(dialog, TuneScreen)
        assert float(dialog.query_one("#learning_rate", Input).value) == dashboard.shown.progress.learning_rate
        for value in ("fast", "0", "2", "nan", "-1", ""):
            dialog.query_one("#learning_rate", Input).value = value
            await pilot.press("enter")
            assert pilot.app.screen is dialog
            assert "learning rate" in str(dialog.query_one("#error").render())
            assert "between 1e-08 and 1" in str(dialog.query_one("#error").render())
        dialog.query_one("#learning_rate", Input).value = "1e-4"
        dialog.query_one("#replay_ratio", Input).value = "2"
        await pilot.press("enter")
        assert app_is_there(dashboard)

        def changes() -> set[tuple[str, float]]:
            return {(e.name, e.value) for e in dashboard.feed.snapshot().others if isinstance(e, Changed)}

        await until(pilot, lambda: changes() >= {("learning_rate", 1e-4), ("replay_ratio", 2.0)}, "the changes")
        assert {name for name, _ in changes()} == {"learning_rate", "replay_ratio"}  # only what was touched
        await pilot.press("8", "z", "slash", *"learning", "enter")  # else episodes may push it out of sight
        await until(pilot, lambda: "learning rate: 0.5 → 0.0001" in text(dashboard, "log"), "the change in the log")
        await pilot.press("e")
        await until(pilot, lambda: pilot.app.screen.query("#replay_ratio"), "the dialog")
        assert pilot.app.screen.query_one("#replay_ratio", Input).value == "2"  # what is in force now
        await pilot.press("escape")
        assert app_is_there(dashboard)


async def test_v_asks_for_an_evaluation(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)

        def count() -> int:
            return sum(isinstance(event, Evaluation) for event in dashboard.feed.snapshot().others)

        before = count()
        await pilot.press("v")
        await until(pilot, lambda: count() == before + 1, "the evaluation")
        await until(pilot, lambda: "100%" in text(dashboard, "evaluations"), "its line")


# ---------------------------------------------------------------------------------------------- the game


async def test_the_game_is_frozen_and_saved(served: Run, notices: list[str]) -> None:
    async with MarioApp(open_run=served).run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        game = dashboard.query_one(GameView)
        await pilot.press("f12")
        await until(pilot, lambda: any("No picture" in notice for notice in notices), "the notice")
        await pilot.press("g")
        await until(pilot, lambda: game.frame, "a picture")
        await pilot.press("f")
        assert "frozen" in text(dashboard, "game").splitlines()[0]
        held = game.frame
        assert held is not None
        await until(pilot, lambda: dashboard.feed.frame().index > held.index + 4, "later pictures")
        assert game.frame is held
        await pilot.press("f12")
        (picture,) = (served.path / "pictures").glob("*.png")
        with Image.open(picture) as image:
            assert image.size == (256, 240)
            assert image.tobytes() == held.rgb
        await until(pilot, lambda: any("Saved" in notice for notice in notices), "the notice")
        await pilot.press("f")
        await until(pilot, lambda: game.frame is not held, "the game going on")
        await pilot.press("g")
        await until(pilot, lambda: "game" not in in_sight(dashboard), "no game")
        await pilot.press("9")
        await until(pilot, lambda: "game" in in_sight(dashboard), "the game by its digit")
        picture.unlink()


async def test_a_key_that_selects_a_panel_does_nothing_else(served: Run) -> None:
    dashboard = DashboardScreen(served)
    app = MarioApp()
    async with app.run_test():
        await app.push_screen(dashboard)
        bound = [each for at in (app, dashboard, *dashboard.panels) for each in at._bindings.key_to_bindings.items()]
        taken = {key for key, bindings in bound for each in bindings if not each.action.startswith("panel(")}
        keys = [panel.key for panel in dashboard.panels]
        assert len({*keys}) == len(keys) and {*keys} == {*PANEL_KEYS} and not taken & {*keys}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_q_values_and_the_agents_view(served: Run, size: tuple[int, int], notices: list[str]) -> None:
    async with MarioApp(open_run=served).run_test(size=size) as pilot:
        dashboard = await opened(pilot)
        game = dashboard.query_one(GameView)
        await pilot.press("a")
        await until(pilot, lambda: any("is hidden" in notice for notice in notices), "the notice")
        await pilot.press("g")
        await until(pilot, lambda: "right+A" in text(dashboard, "game"), "Q-values")
        await pilot.press("f")
        thought = game.frame.thought
        lines = text(dashboard, "game").splitlines()
        assert len(lines) == game.size.height
        assert all(len(line) == game.size.width for line in lines)
        (marked,) = [line for line in lines if "? right" in line or "▶ right" in line]
        assert ("?" in marked) == thought.random
        assert f"{thought.q_values[thought.action]:.2f}" in marked
        seen_before = game._lines
        await pilot.press("a")
        assert game._lines != seen_before
        assert sum(f" {name} " in text(dashboard, "game") for name in dashboard.shown.hello.actions) >= 3
        await pilot.press("f", "a")
        await until(pilot, lambda: "(random)" in text(dashboard, "game").splitlines()[0], "a random action")


# ---------------------------------------------------------------------------------------------- sizes


@pytest.mark.long
async def test_a_storm_of_sizes_is_harmless(served: Run) -> None:
    async with MarioApp(open_run=served).run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        await pilot.press("g")
        for step in range(60):
            await pilot.resize_terminal(20 + step * 37 % 200, 5 + step * 23 % 60)
            if step % 10 == 5:
                await pilot.press("z" if step % 20 == 5 else "4")
        await pilot.resize_terminal(80, 24)
        await pilot.press("W", "1")
        await until(pilot, lambda: "actors" in in_sight(dashboard), "the dashboard")
        assert dashboard.query_one("#header").size.width == 80
        assert "running" in text(dashboard, "header")
