"""The form of a new run: made from the configuration, and saying what the command line would say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, TabbedContent

from engine.config import run_config as configuration
from engine.config.presets import PRESETS
from engine.config.run_config import GAMES, RUNNERS, ConfigError, RunConfig, belongs, make_config
from engine.envs.factory import make_lanes
from engine.monitoring.memory_budget import check_memory, estimate_bytes, observation_layout
from mario_tui.app import MarioApp
from mario_tui.data.form import SPECS, Form
from mario_tui.launch import make_plan
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.widgets.field_row import Choice, FieldRow
from tests.support.app import type_at_once, until


def test_the_form_of_a_resumed_run_says_so_on_its_command_line() -> None:
    form = Form(make_config({"game": "snake"}).options(), "snake-12x12-20261121")
    assert form.command() == "mario-tui --resume=snake-12x12-20261121"
    form.set("steps", "4000")
    assert form.command() == "mario-tui --resume=snake-12x12-20261121 --steps=4000"


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_an_untouched_form_is_the_default_run_of_game_and_runner(game: str, runner: str) -> None:
    form = Form()
    form.set("game", game)
    form.set("runner", runner)
    assert form.config() == make_config({"game": game, "runner": runner})
    assert form.errors() == {}
    assert form.command().startswith("mario-tui --")
    for name in SPECS:
        assert form.offered(name) is belongs(name, game, runner)
        value = getattr(form.config(), name)
        if form.offered(name) and value is not None and name != "batch_size":
            assert form.text(name) in (str(value), {True: "on", False: "off"}.get(value))


def test_what_is_typed_is_read_as_on_the_command_line() -> None:
    form = Form()
    for name, text in {"steps": "4e6", "batch_size": "auto", "amp": "off", "learning_rate": "1e-3"}.items():
        form.set(name, text)
    assert form.config() == make_config({"steps": 4_000_000, "batch_size": "auto", "amp": False, "learning_rate": 1e-3})
    assert form.command() == "mario-tui --steps=4e6 --batch-size=auto --learning-rate=1e-3 --no-amp"
    form.set("game", "snake")
    form.set("stage", "1-2")  # not an option of this game: left out
    assert "--stage" not in form.command()
    form.set("steps", "")
    assert form.config().steps == RunConfig.steps


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_lies_under_what_is_typed(name: str) -> None:
    form = Form()
    form.set("preset", name)
    assert form.config() == make_plan({}, preset_name=name).config
    assert form.command() == f"mario-tui --preset={name}"
    assert form.text("runner") == PRESETS[name]["runner"]
    assert form.default("batch_size") == str(PRESETS[name]["batch_size"])
    form.set("batch_size", "32")
    assert form.config() == make_plan({"batch_size": 32}, preset_name=name).config
    assert form.errors() == {}
    form.set("preset", "none")
    assert form.command() == "mario-tui --batch-size=32"


def test_every_wrong_field_is_named_in_the_configurations_own_words() -> None:
    form = Form()
    for name, text in {"steps": "many", "seed": "-1", "gamma": "2", "rom": "x"}.items():
        form.set(name, text)
    errors = form.errors()
    assert set(errors) == {"steps", "seed", "gamma"}
    for name in errors:
        with pytest.raises(ConfigError) as caught:
            make_config({name: form.values()[name]})
        assert errors[name] == caught.value.reason
    form.reset()
    form.set("buffer_size", "1000")  # good by itself, but not with the default of another
    assert form.errors() == {"burnin": "must be at most --buffer-size (1,000), got 10,000"}
    form.set("burnin", "500")
    assert form.errors() == {}


def test_a_batch_size_of_nothing_is_a_wrong_field() -> None:
    form = Form()
    form.set("batch_size", "0")
    assert form.errors() == {"batch_size": "must be auto, or a whole number between 1 and 65,536, got 0"}


def test_a_run_goes_on_under_another_runner_with_its_defaults() -> None:
    form = Form(make_config({"parallel_envs": 8, "checkpoint_replay": True, "seed": 5}).options())
    form.set("runner", "apex")
    assert form.errors() == {}
    assert (form.config().seed, form.config().parallel_envs) == (5, make_config({"runner": "apex"}).parallel_envs)


def test_an_option_of_another_runner_is_not_offered() -> None:
    form = Form()
    assert not form.offered("num_actors")
    form.set("runner", "apex")
    assert form.offered("num_actors")
    assert not form.offered("checkpoint_replay")


@pytest.mark.parametrize(
    "options",
    [
        {"game": "mario"},
        {"game": "mario", "observation": "84x84"},
        {"game": "snake", "board": "8x5"},
        {"game": "tetris"},
    ],
)
def test_the_estimate_knows_what_the_game_shows(options: dict[str, Any]) -> None:
    config = make_config(options)
    spec = make_lanes(config, 1, threads=1, seed=0).spec
    assert observation_layout(config) == (spec.frame_shape, spec.stack, spec.actions if spec.masked else 0)
    total, replay = estimate_bytes(config)
    assert 0 < replay < total
    check_memory(config, *observation_layout(config), with_replay=True)


def test_too_much_memory_is_said_before_the_start() -> None:
    form = Form()
    assert "memory: about 1.9 GiB (1.1 GiB replay)" in form.memory()
    form.set("buffer_size", "900000000")
    assert form.memory().endswith("TOO MUCH")
    form.set("replay_device", "files")
    assert form.memory().endswith("replay in a file")


async def test_the_form_shows_every_option_of_the_game_and_what_is_wrong(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        assert app.focused is not None
        assert app.focused.id == "start"
        tabs = screen.query_one(TabbedContent)
        for _ in tabs.query("TabPane"):  # look at every group
            await pilot.press("f3")
            group = tabs.active
            await until(pilot, lambda group=group: tabs.get_pane(group).query(FieldRow), group)
        await pilot.pause()
        for game in GAMES:
            screen.query_one("#edit-game", Choice).value = game
            await until(pilot, lambda game=game: screen.form.text("game") == game, game)
            shown = {row.field for row in screen.query(FieldRow) if row.display} - {"preset"}
            assert shown == {name for name in SPECS if belongs(name, game, "single")}
            lanes = screen.query_one("#edit-parallel_envs", Input)
            assert lanes.placeholder == str(make_config({"game": game}).parallel_envs)
        tabs.active = "group-environment"
        await pilot.pause()
        screen.query_one("#edit-board", Input).value = "99x99"
        row = screen.query_one("#row-board", FieldRow)
        await until(pilot, lambda: "✗ must be WIDTHxHEIGHT" in str(row.query_one(".about").render()), "the complaint")
        assert "✗" in str(tabs.get_tab("group-environment").label)
        tabs.active = "group-run"
        await until(pilot, lambda: app.focused in screen._fields(), "the group, with the focus in it")
        await pilot.press("ctrl+r")
        assert app.screen is screen  # not started, and led to the field
        await until(pilot, lambda: app.focused is row.editor, "the field")
        assert "✗ Not started: --board must be WIDTHxHEIGHT" in str(screen.query_one("#about").render())
        await pilot.press("f4")
        assert (row.editor.value, screen.form.text("game")) == ("", "mario")  # type: ignore[comparison-overlap]
        assert screen.form.command() == f"mario-tui --run-dir={tmp_path / 'runs'}"
        await pilot.press("f2", "f3", "escape")
        assert isinstance(app.screen, HomeScreen)
    assert not (tmp_path / "runs").exists()


async def test_arrows_and_help_of_a_field(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("n", "tab", "tab", "tab")  # over Cancel, to the first field
        await until(pilot, lambda: isinstance(app.focused, Choice) or app.focused.id != "cancel", "the fields")  # type: ignore[union-attr]
        app.screen.query_one("#edit-game").focus()
        await pilot.press("down")
        assert app.focused is app.screen.query_one("#edit-stage")
        assert "1-1 to 8-4; several (1-1,1-2): each episode" in str(app.screen.query_one("#about").render())
        await pilot.press("down", "enter", "down", "enter")  # the list opens, and the arrows are its own then
        assert app.screen.form.text("emulator") == "nes-py"  # type: ignore[attr-defined]
        await pilot.press("up")
        assert app.focused is app.screen.query_one("#edit-stage")


async def test_arrows_lead_from_the_buttons_into_the_fields_and_round(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        type_at_once(app, "n", "down", "down")  # the fields are not there yet
        await until(pilot, lambda: app.focused is not None and app.focused.id == "edit-game", "the second field")
        await pilot.press("up", "up")
        assert app.focused.id == "start"  # type: ignore[union-attr]
        await pilot.press("right")
        assert app.focused.id == "cancel"  # type: ignore[union-attr]
        await pilot.press("up")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        assert app.focused is screen._fields()[-1]
        await pilot.press("down", "down")
        assert app.focused is screen._fields()[0]


async def test_what_is_typed_after_a_change_of_group_goes_to_the_group_that_is_shown(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("n")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        await until(pilot, lambda: screen.query("#edit-seed"), "the fields")
        seed = screen.query_one("#edit-seed", Input)
        for built in (False, True):
            seed.focus()
            await pilot.pause()
            type_at_once(app, "f3", *"12x", "enter")  # to Environment, whose first field is the reward
            reward = await until(pilot, lambda: list(screen.query("#edit-reward").results(Input)), "the group")
            await until(pilot, lambda reward=reward: reward[0].value == "12x", f"the value, built: {built}")
            await until(
                pilot, lambda: "Not started: --reward must be one of" in str(screen.query_one("#about").render()), "why"
            )
            assert app.screen is screen
            assert app.focused is reward[0]
            assert (seed.value, screen.form.typed("seed")) == ("", "")
            reward[0].value = ""
            await pilot.press("f2")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("size", [(40, 12), (80, 12), (80, 24)])
async def test_what_is_wrong_is_said_in_full_and_ctrl_r_says_why_it_does_not_start(
    size: tuple[int, int], tmp_path: Path
) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=size) as pilot:
        await pilot.press("n")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        await until(pilot, lambda: screen.query("#edit-seed"), "the fields")
        screen.query_one("#edit-seed").focus()
        await pilot.press(*"-1")
        await pilot.press("f3")
        await until(pilot, lambda: app.focused is not None and app.focused.id != "edit-seed", "the next group")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "edit-seed", "the wrong field")
        about = screen.query_one("#about")
        await until(pilot, lambda: "Not started: --seed must be a whole number" in str(about.render()), "the answer")
        await until(pilot, lambda: "between 0 and 4,294,967,295, got -1" in str(about.render()), "the reason")
        await until(pilot, lambda: about.size.width * about.size.height >= len(str(about.render())), "room for it")
        assert screen.query_one("#edit-seed").region.bottom <= about.region.y  # and the field is in sight above it
    assert not (tmp_path / "runs").exists()


async def test_a_start_that_fails_is_told_in_the_form_which_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = MarioApp(run_dir=str(tmp_path / "file"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("n")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        await until(pilot, lambda: screen.query("#edit-seed"), "the fields")
        screen.query_one("#edit-seed", Input).value = "5"
        await pilot.press("enter")
        await until(pilot, lambda: "--run-dir: " in str(screen.query_one("#about").render()), "the complaint")
        assert app.screen is screen
        assert screen.form.text("seed") == "5"


def test_the_form_is_made_from_the_configuration() -> None:
    """A new field needs nothing here."""
    assert list(SPECS) == [spec.name for spec in dataclasses.fields(configuration.RunConfig)]
