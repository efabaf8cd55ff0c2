"""The form of a new run: made from the configuration, and saying what the command line would say."""

from __future__ import annotations

import argparse
import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, Static, TabbedContent

from engine.config import run_config as configuration
from engine.config.presets import PRESETS
from engine.config.reading import make_config
from engine.config.run_config import GAMES, RUNNERS, ConfigError, RunConfig, belongs, flag
from engine.config.run_name import ACCEPTED
from engine.envs.factory import make_lanes
from engine.monitoring.memory_budget import check_memory, estimate_bytes, observation_layout
from engine.runs.registry import create_run
from mario_tui.app import MarioApp
from mario_tui.commands.train import training_parser
from mario_tui.data.form import SPECS, Form
from mario_tui.launch import make_plan
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.widgets.field_row import Choice, FieldRow
from mario_tui.widgets.preset_row import PresetList
from tests.support.app import folder_of_runs, type_at_once, until


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
    assert form.text("runner") == PRESETS[name].options["runner"]
    assert form.default("batch_size") == str(PRESETS[name].options["batch_size"])
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


def test_a_name_is_validated_and_is_no_option_of_a_resumed_run(tmp_path: Path) -> None:
    form = Form()
    form.set("run_dir", str(tmp_path))
    form.set("name", "lr high")
    assert form.errors() == {"name": f"must be {ACCEPTED}, got 'lr high'"}
    form.set("name", "lr-high")
    assert form.errors() == {}
    assert form.command() == f"mario-tui --name=lr-high --run-dir={tmp_path}"
    assert form.name == "lr-high"
    create_run(form.config(), "lr-high")
    assert form.errors() == {"name": f"{tmp_path}/lr-high exists already; choose another name, or --resume lr-high"}
    form.set("run_dir", "")
    assert form.errors() == {}  # not in this folder
    form.set("name", "")
    assert form.name is None
    assert not Form(make_config({}).options(), "lr-high").offered("name")


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_help_and_defaults_are_those_of_the_command_line_for_game_and_runner(game: str, runner: str) -> None:
    form = Form()
    form.set("game", game)
    form.set("runner", runner)
    flags = training_parser(game, runner)._option_string_actions
    for name in SPECS:
        help = flags[flag(name)].help
        if form.offered(name) and name not in ("game", "runner"):
            assert help == f"{form.help(name)} (default: {form.default_shown(name)})"
        elif not form.offered(name):
            assert help == argparse.SUPPRESS
    other_games = {other.capitalize() for other in GAMES} - {game.capitalize()}
    assert not [word for word in other_games if word in form.help("reward") + form.help("curriculum")]


def test_a_preset_tells_what_it_is_and_what_it_trains_for_how_long() -> None:
    form = Form()
    assert form.presets()["none"] == "the defaults · mario 1-1, 2,000,000 steps"
    assert form.presets()["parallel-classic"] == "an earlier trainer, 4 workers · mario 1-1, 2,000 episodes"
    form.set("game", "snake")
    form.set("steps", "1e5")
    assert form.presets()["apex-paper"] == "Horgan et al. 2018, 14 actors · snake 12x12, 100,000 steps"
    form.set("preset", "parallel-classic")
    assert form.preset_sets().startswith("--runner parallel, --num-processes 4, ")
    resumed = Form(make_config({"stage": "1-2", "steps": 5_000}).options(), "one")
    assert resumed.presets()["none"] == "the run's own options · mario 1-2, 5,000 steps"


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


def focus(app: MarioApp) -> str:
    """What has the focus: a field's name, `start` or `cancel`; empty if nothing has it."""
    return "" if app.focused is None else str(app.focused.id).removeprefix("edit-")


async def form_of(pilot: Pilot[Any]) -> NewRunScreen:
    """Open the form from home, until its first field has the focus."""
    await pilot.press("n")
    screen = pilot.app.screen
    assert isinstance(screen, NewRunScreen)
    await focused(pilot, "preset")
    return screen


async def focused(pilot: Pilot[Any], name: str) -> None:
    app: Any = pilot.app
    await until(pilot, lambda: focus(app) == name, f"the focus on {name}")


def shown(screen: Any, what: str) -> str:
    return str(screen.query_one(what, Static).render())


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
        for game in GAMES:
            screen.query_one("#edit-game", Choice).value = game
            await until(pilot, lambda game=game: screen.form.text("game") == game, game)
            offered = {row.field for row in screen.query(FieldRow) if row.display} - {"preset", "name"}
            assert offered == {name for name in SPECS if belongs(name, game, "single")}
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
        await until(pilot, lambda: isinstance(app.screen, HomeScreen), "home")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("on", "back", "size"),
    [("enter", "up", (40, 12)), ("down", "shift+tab", (80, 24)), ("tab", "up", (40, 12))],
)
async def test_keys_lead_through_the_fields_to_the_start_button_and_back(
    on: str, back: str, size: tuple[int, int], tmp_path: Path
) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=size) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f2")
        await focused(pilot, "render")
        names = [name for name in SPECS if SPECS[name].metadata["group"] == "output" and screen.form.offered(name)]
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
        await until(pilot, lambda: isinstance(app.screen, HomeScreen), "home")


async def test_a_preset_is_chosen_with_arrows_and_its_values_are_the_defaults_of_the_fields(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        assert screen.form.preset is None
        for name in PRESETS:
            await pilot.press("down")
            await until(pilot, lambda name=name: screen.form.preset == name, name)
            await until(pilot, lambda name=name: PRESETS[name].help in shown(screen, "#about"), "its line")
            assert "--runner" in shown(screen, "#row-preset .about")
        await pilot.press("down")
        assert focus(app) == "start"
        await pilot.press("up", "up", "f3")  # back to the last one, and to the one above it
        await focused(pilot, "name")
        assert screen.form.preset == "apex-classic"
        assert screen.query_one("#edit-runner", Choice).value == "apex"
        assert screen.query_one("#edit-parallel_envs", Input).placeholder == "1"
        await pilot.press("f2", "home")
        await until(pilot, lambda: screen.form.preset is None, "no preset")
        assert screen.query_one("#edit-parallel_envs", Input).placeholder == "32"
        await pilot.press("end")
        await until(pilot, lambda: screen.form.preset == "apex-paper", "the last one")
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
        await until(pilot, lambda: isinstance(app.screen, DashboardScreen), "the dashboard")
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the end")
    assert (tmp_path / "runs" / "first2" / "config.toml").is_file()


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


async def test_what_is_typed_after_a_change_of_group_goes_to_the_group_that_is_shown(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form_of(pilot)
        await pilot.press("f3")
        await focused(pilot, "name")
        seed = screen.query_one("#edit-seed", Input)
        for built in (False, True):
            seed.focus()
            await pilot.pause()
            type_at_once(app, "f3", *"12x", "ctrl+r")  # to Environment, whose first field is the reward
            reward = await until(pilot, lambda: list(screen.query("#edit-reward").results(Input)), "the group")
            await until(pilot, lambda reward=reward: reward[0].value == "12x", f"the value, built: {built}")
            await until(pilot, lambda: "Not started: --reward must be one of" in shown(screen, "#about"), "why")
            assert app.screen is screen
            assert app.focused is reward[0]
            assert (seed.value, screen.form.typed("seed")) == ("", "")
            reward[0].value = ""
            await pilot.press("f2")
            await focused(pilot, "name")
    assert not (tmp_path / "runs").exists()


async def test_what_is_typed_after_enter_goes_to_the_next_field(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path / "runs"))
    async with app.run_test(size=(80, 24)) as pilot:
        type_at_once(app, "n", "down", "f3", *"one", "enter", "enter", *"1-2", "enter", "down", *"x.nes")
        await until(pilot, lambda: isinstance(app.screen, NewRunScreen), "the form")
        screen = app.screen
        assert isinstance(screen, NewRunScreen)
        await until(pilot, lambda: "--rom=x.nes" in shown(screen, "#command"), "all of it")
        typed = {name: screen.form.typed(name) for name in ("preset", "name", "game", "stage", "emulator", "rom")}
        assert typed == {
            "preset": "parallel-classic", "name": "one", "game": "", "stage": "1-2", "emulator": "", "rom": "x.nes",
        }  # fmt: skip
        assert focus(app) == "rom"


@pytest.mark.parametrize("size", [(40, 12), (80, 12), (80, 24)])
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


@pytest.mark.parametrize("size", [(40, 12), (80, 24)])
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


def test_the_form_is_made_from_the_configuration() -> None:
    """A new field needs nothing here."""
    assert list(SPECS) == [spec.name for spec in dataclasses.fields(configuration.RunConfig)]
