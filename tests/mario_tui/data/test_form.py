"""The values of the form of a new run: made from the configuration, and read as on the command line."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config.command_line import presets
from engine.config.fields import ConfigError, flag
from engine.config.game import games
from engine.config.reading import make_config
from engine.config.run_config import RunConfig, belongs, options_of_all, specs_of
from engine.config.runners import ACCEPTED, RUNNERS
from engine.config.user_code import Asking
from engine.envs.factory import make_lanes
from engine.games.gym import spaces
from engine.monitoring.memory_budget import check_memory, estimate_bytes
from engine.runs.registry import create_run
from mario_tui.commands.train import training_parser
from mario_tui.data.form import Form, rows
from mario_tui.launch import make_plan
from tests.support.policy_files import altered


def ask(form: Form) -> None:
    """Ask what the form has to know."""
    form.errors()
    if form.question is not None:
        form.answered(form.question, Asking(form.question).run())


def test_the_form_of_a_resumed_run_says_so_on_its_command_line() -> None:
    form = Form(make_config({"game": "snake"}).options(), "snake-12x12-20261121")
    assert form.command() == "mario-tui --resume=snake-12x12-20261121"
    form.set("steps", "4000")
    assert form.command() == "mario-tui --resume=snake-12x12-20261121 --steps=4000"


@pytest.mark.parametrize("game", games())
@pytest.mark.parametrize("runner", RUNNERS)
def test_an_untouched_form_is_the_default_run_of_game_and_runner(game: str, runner: str) -> None:
    form = Form()
    form.set("game", game)
    form.set("runner", runner)
    assert form.config() == make_config({"game": game, "runner": runner})
    assert form.errors() == {}
    assert form.command().startswith("mario-tui --")
    for name in options_of_all():
        assert form.offered(name) is belongs(name, game, runner)
        if name not in specs_of(game):
            continue
        value = form.config().value(name)
        if form.offered(name) and value is not None and name != "batch_size":
            assert form.text(name) in (str(value), {True: "on", False: "off"}.get(value))


def test_an_initial_policy_decides_defaults_that_can_be_overridden(tmp_path: Path) -> None:
    form = Form()
    form.set("initial_policy", str(altered("mario-1-1", tmp_path, swim_strokes=True)))
    assert (form.default("observation"), form.default("swim_strokes")) == ("50x60", "on")
    assert form.config().value("swim_strokes") and form.config().value("observation") == "50x60"
    form.set("swim_strokes", "off")
    assert not form.config().value("swim_strokes") and "--no-swim-strokes" in form.command()
    form.set("initial_policy", "")
    assert (form.default("observation"), form.default("swim_strokes")) == ("50x60-red", "off")


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


@pytest.mark.parametrize("name", presets())
@pytest.mark.process
def test_a_preset_lies_under_what_is_typed(name: str) -> None:
    form = Form()
    form.set("preset", name)
    ask(form)
    assert form.config() == make_plan({}, preset_name=name).config
    assert form.command() == f"mario-tui --preset={name}"
    for option, value in presets()[name].options.items():
        assert form.text(option) == (("on" if value else "off") if isinstance(value, bool) else str(value))
    form.set("batch_size", "48")
    assert form.config() == make_plan({"batch_size": 48}, preset_name=name).config
    assert form.errors() == {}
    form.set("preset", "none")
    assert form.command() == "mario-tui --batch-size=48"


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
    form.set("buffer_size", "1000")
    form.set("burnin", "1001")  # good by itself
    assert form.errors() == {"burnin": "must be at most --buffer-size (1,000), got 1,001"}
    form.set("burnin", "500")
    assert form.errors() == {}


def test_a_default_that_follows_a_typed_value_is_shown() -> None:
    form = Form()
    form.set("sync_every", "1000")
    form.set("buffer_size", "5000")
    assert (form.text("tau"), form.text("burnin")) == ("1.0", "5000")
    form.set("burnin", "5000")
    assert form.typed("burnin") == ""  # the default
    form.set("tau", "0.5")
    assert form.default("tau") == "1.0" and form.config().tau == 0.5
    form.set("sync_every", "many")  # wrong: nothing follows it
    assert form.default("tau") == "0.004"
    form.reset()
    assert form.text("tau") == "0.004"
    resumed = Form(make_config({"sync_every": 1000}).options(), "one")
    assert resumed.text("tau") == "1.0"
    resumed.set("sync_every", "1")
    assert resumed.text("tau") == "0.004" and resumed.errors() == {}


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


@pytest.mark.parametrize("game", games())
@pytest.mark.parametrize("runner", RUNNERS)
def test_help_and_defaults_are_those_of_the_command_line_for_game_and_runner(game: str, runner: str) -> None:
    form = Form()
    form.set("game", game)
    form.set("runner", runner)
    flags = training_parser(game, runner)._option_string_actions
    for name in options_of_all():
        help = flags[flag(name)].help
        if form.offered(name) and name not in ("game", "runner"):
            assert help == f"{form.help(name)} (default: {form.default_shown(name)})"
        elif not form.offered(name):
            assert help == argparse.SUPPRESS
    other_games = {other.capitalize() for other in games()} - {game.capitalize()}
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
        {"game": "mario", "observation": "84x84"},
        {"game": "snake", "board": "8x5"},
        {"game": "tetris", "next_piece": True},
    ],
)
def test_the_estimate_knows_what_the_game_shows(options: dict[str, Any]) -> None:
    config = make_config(options)
    spec = make_lanes(config, 1, threads=1, seed=0).spec
    assert config.spec == spec
    total, replay = estimate_bytes(config)
    assert 0 < replay < total
    check_memory(config, with_replay=True)


def test_too_much_memory_is_said_before_the_start() -> None:
    form = Form()
    assert "memory: about 1.1 GiB (0.3 GiB replay)" in form.memory()
    form.set("buffer_size", "900000000")
    assert form.memory().endswith("TOO MUCH")
    form.set("replay_device", "files")
    assert form.memory().endswith("replay in a file")


def test_the_form_is_made_from_the_configuration() -> None:
    """A new field needs nothing here."""
    assert list(rows())[2:] == list(options_of_all())


def test_the_list_of_presets_asks_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of environments would each take seconds, before anything of the form is seen."""
    spaces.ask.cache_clear()
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: pytest.fail("a process is asked"))
    listed = Form().presets()
    assert listed.keys() == {"none", *presets()}
    assert listed["atari"].endswith("gym ALE/Pong-v5, 10,000,000 steps")


def test_what_is_typed_is_kept_while_defaults_that_follow_an_environment_are_not_known() -> None:
    form = Form()
    form.set("game", "gym")
    form.set("env", "ALE/Pong-v5")
    assert form.errors() == {} and form.question is not None and form.memory() == "loading ALE/Pong-v5 …"
    guess = form.default("network")
    form.set("network", guess)
    assert form.typed("network") == guess
    form.set("runner", form.default("runner"))  # which follows nothing
    assert form.typed("runner") == ""
    form.answered(form.question, ConfigError("env", "is not here"))
    assert form.errors() == {"env": "is not here"} and form.question is None
