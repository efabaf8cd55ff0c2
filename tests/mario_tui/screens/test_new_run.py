"""The form of a new run under Textual's pilot: its fields, keys and complaints."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from textual.events import Paste
from textual.widgets import Button, Input, Static, TabbedContent

from engine.config.game import games
from engine.config.reading import make_config
from engine.config.run_config import belongs, options_of_all
from mario_tui.app import MarioApp
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.widgets.form_rows import Choice, FieldRow, TextField
from tests.support.app import shown_as, type_at_once, until
from tests.support.form import focus, focused, form_of, shown


@pytest.mark.long
async def test_the_form_shows_every_option_of_the_game_and_what_is_wrong(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await form_of(pilot)
        tabs = screen.query_one(TabbedContent)
        for _ in tabs.query("TabPane"):  # look at every group
            await pilot.press("f3")
            group = tabs.active
            await until(pilot, lambda group=group: tabs.get_pane(group).query(FieldRow), group)
        await pilot.pause()
        for game in games():
            screen.query_one("#edit-game", Choice).value = game
            await until(pilot, lambda game=game: screen.form.text("game") == game, game)
            offered = {row.field for row in screen.query(FieldRow) if row.display} - {"preset", "name"}
            assert offered == {name for name in options_of_all() if belongs(name, game, "single")}
            lanes = screen.query_one("#edit-parallel_envs", Input)
            assert lanes.placeholder == str(make_config({"game": game}).parallel_envs)
        tabs.active = "group-environment"
        await focused(pilot, "reward")
        screen.query_one("#edit-board", Input).value = "99x99"
        row = screen.query_one("#row-board", FieldRow)
        await until(pilot, lambda: "✗ must be WIDTHxHEIGHT" in str(row.query_one(".about").render()), "the complaint")
        assert "✗" in str(tabs.get_tab("group-environment").label)
        tabs.active = "group-run"
        await focused(pilot, "name")
        assert shown(screen, "#elsewhere").startswith("✗ Environment: --board must be WIDTHxHEIGHT")
        await pilot.press("ctrl+r")
        assert app.screen is screen  # not started, and led to the field
        await focused(pilot, "board")
        assert "✗ Not started: --board must be WIDTHxHEIGHT" in shown(screen, "#about")
        assert shown(screen, "#elsewhere") == ""
        await pilot.press("f4")
        assert isinstance(row.editor, Input)
        assert (row.editor.value, screen.form.text("game")) == ("", "mario")
        assert screen.form.command() == f"mario-tui --run-dir={tmp_path / 'runs'}"
        await pilot.press("f2", "f3", "escape")
        await shown_as(pilot, HomeScreen)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("on", "back", "size"),
    [
        ("enter", "up", (40, 12)),
        pytest.param("down", "shift+tab", (80, 24), marks=pytest.mark.long),
        pytest.param("tab", "up", (40, 12), marks=pytest.mark.long),
    ],
)
async def test_keys_lead_through_the_fields_to_the_start_button_and_back(
    on: str, back: str, size: tuple[int, int], tmp_path: Path
) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=size) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f2")
        await focused(pilot, "render")
        names = [
            name
            for name, spec in options_of_all().items()
            if spec.metadata["group"] == "output" and screen.form.offered(name)
        ]
        for name, after in pairwise([*names, "start"]):
            await pilot.press(on)
            assert focus(app) == after, (name, on)
            assert app.focused is not None
            assert app.focused.region.bottom <= screen.query_one("#buttons").region.bottom
        for name in reversed(names):
            await pilot.press(back)
            assert focus(app) == name
    assert not (tmp_path / "runs").exists()


async def test_two_presses_of_enter_start_the_default_run_and_the_second_one_is_on_start(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "file"))
    (tmp_path / "file").write_text("")  # so that nothing is started
    async with app.run_test(size=(80, 24)) as pilot:
        type_at_once(app, "n", "enter")
        await focused(pilot, "start")
        await until(pilot, lambda: shown(app.screen, "#about") == "enter: start the run", "what Enter does now")
        await pilot.press("enter")
        await until(pilot, lambda: "--run-dir: " in shown(app.screen, "#about"), "the answer")


async def test_the_ends_of_the_form_meet(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await form_of(pilot)
        await pilot.press("up")
        assert focus(app) == "start"
        for key, expected in (("right", "cancel"), ("left", "start"), ("down", "preset")):
            await pilot.press(key)
            assert focus(app) == expected
        for expected in ("start", "cancel", "preset"):
            await pilot.press("tab")
            assert focus(app) == expected
        await pilot.press("shift+tab", "enter")
        await shown_as(pilot, HomeScreen)


async def test_arrows_and_help_of_a_field(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3", "down", "down")
        await focused(pilot, "stage")
        assert "1-1 to 8-4; several (1-1,1-2): each episode" in shown(screen, "#about")
        await pilot.press("down", "space", "down", "enter")  # the list opens, and the arrows are its own then
        assert screen.form.text("emulator") == "nes-py"
        await pilot.press("right")
        await until(pilot, lambda: screen.form.text("emulator") == "native", "the first one again")
        await pilot.press("left")
        await until(pilot, lambda: screen.form.text("emulator") == "nes-py", "the last one")
        await pilot.press("up")
        assert focus(app) == "stage"


@pytest.mark.long
async def test_a_change_of_group_by_key_or_mouse_leads_to_its_first_field(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        tabs = screen.query_one(TabbedContent)
        await pilot.click(tabs.get_tab("group-environment"))
        await focused(pilot, "reward")
        await pilot.press("down", "f2")
        await focused(pilot, "name")
        await pilot.press("up")
        assert focus(app) == "start"
        await pilot.click(tabs.get_tab("group-environment"))  # it is built now
        await focused(pilot, "reward")
        for key, name in (("f2", "name"), ("f2", "preset"), ("f2", "render"), ("ctrl+n", "preset"), ("f3", "name")):
            await pilot.press(key)
            await focused(pilot, name)


@pytest.mark.long
async def test_what_is_typed_after_a_change_of_group_goes_to_the_group_that_is_shown(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        for first in ("name", "reward", "initial_policy"):
            await pilot.press("f3")
            await focused(pilot, first)
        gamma = screen.query_one("#edit-gamma", Input)
        for built in (False, True):
            gamma.focus()
            await pilot.pause()
            type_at_once(app, "f3", *"12x", "ctrl+r")  # to Exploration, whose first field is epsilon
            epsilon = await until(pilot, lambda: list(screen.query("#edit-epsilon").results(Input)), "the group")
            await until(pilot, lambda epsilon=epsilon: epsilon[0].value == "12x", f"the value, built: {built}")
            await until(pilot, lambda: "Not started: --epsilon must be between" in shown(screen, "#about"), "why")
            assert app.screen is screen
            assert epsilon[0].has_focus
            assert (gamma.value, screen.form.typed("gamma")) == ("", "")
            epsilon[0].value = ""
            await pilot.press("f2")
            await focused(pilot, "initial_policy")
    assert not (tmp_path / "runs").exists()


async def test_an_update_of_the_form_keeps_what_it_has_not_been_told_yet(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        screen.query_one("#edit-stage", TextField).insert_text_at_cursor("4")
        screen.query_one("#edit-runner", Choice).action_turn(1)
        screen.on_field_row_changed()  # of another field; both events are still queued
        await until(pilot, lambda: screen.form.typed("runner"), "the runner")
        await until(pilot, lambda: screen.form.typed("stage"), "the stage")
        assert (screen.form.typed("stage"), screen.form.typed("runner")) == ("4", "parallel")
        screen.query_one("#edit-stage", TextField).insert_text_at_cursor("-4")
        await pilot.press("f4")  # a reset drops it
        await until(pilot, lambda: not screen.form.typed("runner"), "the reset")
        assert (screen.form.typed("stage"), screen.query_one("#edit-stage", Input).value) == ("", "")


async def test_what_is_typed_after_enter_goes_to_the_next_field(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        type_at_once(app, "n", "down", "f3", *"one", "enter", "enter", *"1-2", "enter", "down", *"x.nes")
        await shown_as(pilot, NewRunScreen)
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        await until(pilot, lambda: "--rom=x.nes" in shown(screen, "#command"), "all of it")
        typed = {name: screen.form.typed(name) for name in ("preset", "name", "game", "stage", "emulator", "rom")}
        assert typed == {
            "preset": "parallel-classic", "name": "one", "game": "", "stage": "1-2", "emulator": "", "rom": "x.nes",
        }  # fmt: skip
        assert focus(app) == "rom"


@pytest.mark.parametrize(
    "size", [(40, 12), pytest.param((80, 12), marks=pytest.mark.long), pytest.param((80, 24), marks=pytest.mark.long)]
)
async def test_what_is_wrong_is_said_in_full_and_ctrl_r_says_why_it_does_not_start(
    size: tuple[int, int], tmp_path: Path
) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=size) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        screen.query_one("#edit-seed").focus()
        await pilot.press(*"-1")
        await pilot.press("f3")
        await focused(pilot, "reward")
        assert "✗ Run: --seed must be" in shown(screen, "#elsewhere")
        await pilot.press("ctrl+r")
        await focused(pilot, "seed")
        about = screen.query_one("#about")
        await until(pilot, lambda: "Not started: --seed must be a whole number" in str(about.render()), "the answer")
        await until(pilot, lambda: "between 0 and 4,294,967,295, got -1" in str(about.render()), "the reason")
        await until(pilot, lambda: about.size.width * about.size.height >= len(str(about.render())), "room for it")
        assert screen.query_one("#edit-seed").region.bottom <= about.region.y  # and the field is in sight above it
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("size", [(40, 12), pytest.param((80, 24), marks=pytest.mark.long)])
async def test_the_error_of_the_focused_field_is_on_the_screen_while_it_is_typed(
    size: tuple[int, int], tmp_path: Path
) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=size) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        about, groups = screen.query_one("#about", Static), screen.query_one("#groups")
        for name, letter in {"name": "/", "stage": "9", "parallel_envs": "0"}.items():
            field = screen.query_one(f"#edit-{name}", Input)
            field.focus()
            await pilot.press(letter)
            await until(pilot, lambda name=name: name in screen.form.errors(), f"the error of {name}")
            reason = f"✗ {screen.form.errors()[name]}"
            await until(pilot, lambda reason=reason: shown(screen, "#about") == reason, reason)
            await until(pilot, lambda reason=reason: about.size.area >= len(reason), "room for it")
            await until(pilot, lambda field=field: groups.region.contains_region(field.region), "the field in sight")
            await pilot.press("ctrl+u")


async def test_a_start_that_fails_is_told_in_the_form_which_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = MarioApp(run_dir=str(tmp_path / "file"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        screen.query_one("#edit-seed", Input).value = "5"
        screen.query_one("#start", Button).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "--run-dir: " in shown(screen, "#about"), "the complaint")
        assert app.screen is screen
        assert screen.form.text("seed") == "5"


async def test_pasted_text_keeps_its_place_among_typed_keys(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        type_at_once(app, "1", "2")
        paste = Paste("34\nand no second line")
        paste.set_sender(app)
        assert app._driver is not None
        app._driver.send_message(paste)
        type_at_once(app, "7", "8")
        await until(pilot, lambda: len(screen.form.typed("name")) == 6, "all of it")
        assert screen.form.typed("name") == "123478"
