"""Options: the command line, the file and the dataclass say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from engine.config.command_line import command_line, given
from engine.config.fields import AUTO, ConfigError
from engine.config.game import games
from engine.config.reading import make_config
from engine.config.run_config import RunConfig, options_of_all
from engine.config.runners import RUNNERS
from engine.errors import UserError
from engine.runs.registry import create_run
from engine.runs.run import read_config
from mario_tui.commands.train import training_parser
from mario_tui.launch import make_plan
from tests.support.real_checkpoint import add_checkpoint


def parse(*arguments: str) -> dict[str, object]:
    return given(training_parser().parse_args(arguments))


def test_only_given_flags_are_given() -> None:
    assert parse() == {}
    assert parse("--steps", "1e5", "--no-amp", "--stage", "1-2") == {"steps": 100_000, "amp": False, "stage": "1-2"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--steps", "0"), "--steps must be a whole number of at least 1, got 0"),
        (("--steps", "many"), "--steps must be a whole number of at least 1, got 'many'"),
        (("--steps", "1.5"), "--steps must be a whole number of at least 1, got 1.5"),
        (("--stage", "9-1"), "--stage must be 1-1 to 8-4, game, random, or different stages such as 1-1,1-2"),
        (("--stage", "1-1,9-9"), "--stage must be 1-1 to 8-4"),
        (("--stage", "1-1,1-2,1-1"), "--stage must be 1-1 to 8-4"),
        (("--stage", "1-1,random"), "--stage must be 1-1 to 8-4"),
        (("--curriculum", "--stage", "1-2"), "--curriculum needs several stages, such as --stage 1-1,1-2, got 1-2"),
        (("--swim-strokes", "--frame-skip", "1"), "--frame-skip must be at least 2 with --swim-strokes, got 1"),
        (("--curriculum-rate", "0"), "--curriculum-rate must be between 0.01 and 1, got 0.0"),
        (("--game", "tetris", "--curriculum-steps", "0"), "--curriculum-steps must be a whole number"),
        (("--game", "snake", "--curriculum"),
         "--curriculum is not an option of snake; it needs --game mario or --game tetris"),
        (("--game", "pong"), "--game must be one of mario, snake, tetris, gym, got 'pong'"),
        (("--game", "snake", "--stage", "1-2"), "--stage is not an option of snake; it needs --game mario"),
        (("--board", "7x14"), "--board is not an option of mario; it needs --game snake or --game tetris"),
        (("--game", "tetris", "--board", "14"), "--board must be WIDTHxHEIGHT, width 4 to 12 and height"),
        (("--game", "tetris", "--board", "7x99"), "--board must be WIDTHxHEIGHT"),
        (("--game", "snake", "--reward", "lines"), "--reward must be fruits, got 'lines'"),
        (("--alpha", "nan"), "--alpha must be between 0 and 1, got nan"),
        (("--device", "tpu"), "--device must be one of auto, cpu, mps, cuda, cuda:N, got 'tpu'"),
        (("--burnin", "5000", "--buffer-size", "4000"), "--burnin must be at most --buffer-size (4,000), got 5,000"),
        (("--batch-size", "4096", "--buffer-size", "4000", "--burnin", "100"),
         "--batch-size must be auto, or at most 4,000 (--buffer-size 4,000), got 4,096"),
        (("--batch-size", "2048", "--buffer-size", "4000", "--burnin", "9", "--runner", "ddp", "--num-processes", "4"),
         "--batch-size must be auto, or at most 1,000 (--buffer-size 4,000 / 4 processes), got 2,048"),
        (("--sync-every", "1000", "--tau", "0.004"),
         "--tau must be at least 0.1 with --sync-every 1,000, got 0.004: the target network would hardly move"),
        (("--tau", "1", "--sync-every", "1"), "--tau must be below 1 with --sync-every 1"),
        (("--tau", "1e-5"), "--tau must be between 0.0001 and 1, got 1e-05"),
        (("--eval-noop-min", "31", "--eval-noop-max", "none", "--noop-max", "30"),
         "--eval-noop-min must be at most --noop-max (30), got 31"),
        (("--accumulate", "300", "--batch-size", "256"), "--accumulate must be at most --batch-size (256), got 300"),
        (("--accumulate", "300", "--buffer-size", "200"), "--accumulate must be at most --batch-size (200), got 300"),
        (("--guide", "0.5", "--stage", "game"), "--guide must be 0 with --emulator nes-py, whose states are slow"),
        (("--guide", "0.5", "--stage", "1-1,1-2", "--curriculum"), "--guide must be 0 with --curriculum, whose stages"),
        (("--guide", "0.5", "--start-states", "0.5"),
         "--guide must be at most 0.4 with --start-states 0.5, got 0.5"),
        (("--start-states", "0.2", "--emulator", "nes-py"), "--start-states must be 0 with --emulator nes-py"),
        (("--random-phase", "--emulator", "nes-py"), "--random-phase must be off with the emulator nes-py"),
        (("--eval-noop-min", "31", "--eval-noop-max", "20"),
         "--eval-noop-min must be at most --eval-noop-max (20), got 31"),
        (("--eval-sticky-actions", "1"), "--eval-sticky-actions must be between 0 and 0.99, got 1"),
        (("--game", "snake", "--eval-epsilon", "0.1"), "--eval-epsilon is not an option of snake; it needs --game"),
        (("--buffer-size", "100", "--n-step", "5", "--parallel-envs", "64"), "--buffer-size must be at least 832"),
        (
            ("--game", "tetris", "--advantage-learning", "0.5"),
            "--advantage-learning must be 0 if actions can be illegal, because their Q-values are not learned, got 0.5",
        ),
        (("--final-gamma", "never"), "--final-gamma must be none, or between 0 and 1, got 'never'"),
        (("--episodes", "0"), "--episodes must be none, or a whole number of at least 1, got 0"),
        (("--steps", "none"), "--steps must be a whole number of at least 1, got 'none'"),
    ],
)  # fmt: skip
def test_an_invalid_value_names_the_flag_and_what_it_must_be(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(complaint)):
        make_plan(parse(*arguments))


@pytest.mark.parametrize(("runner", "most"), [("single", 4000), ("apex", 4000), ("parallel", 2000), ("ddp", 2000)])
def test_a_batch_may_be_as_large_as_the_replay_that_it_is_drawn_from(runner: str, most: int) -> None:
    members = {"parallel": {"num_processes": 2}, "ddp": {"num_processes": 2}}.get(runner, {})
    options = {"runner": runner, "buffer_size": 4000, "burnin": 100, **members}
    assert make_config({**options, "batch_size": most}).largest_batch == most
    with pytest.raises(ConfigError, match=f"^--batch-size must be auto, or at most {most:,} .*, got {most + 1:,}$"):
        make_config({**options, "batch_size": most + 1})
    assert make_config({**options, "batch_size": "auto"}).batch_size == AUTO


def test_help_is_for_the_game_that_is_named() -> None:
    mario, snake = (" ".join(training_parser(game).format_help().split()) for game in ("mario", "snake"))
    assert "--stage NAME" in mario and "--board WxH" not in mario
    assert "--stage NAME" not in snake and "(default: 12x12)" in snake and "(default: 0.98)" in snake


def test_unknown_flag_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^unrecognized arguments: --stepps"):
        parse("--stepps", "3")


@pytest.mark.parametrize("name", ["gamma", "steps"])
def test_a_number_of_a_thousand_digits_is_out_of_range(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^--{name} must be "):
        make_config({name: 10**1000})


def test_toml_round_trip_keeps_every_field() -> None:
    config = RunConfig.of(steps=123, stage="4-2", amp=False, learning_rate=1e-3, episodes=7)
    assert make_config(tomllib.loads(config.to_toml())) == config


def test_a_game_has_defaults_of_its_own_and_they_are_kept() -> None:
    config = make_plan(parse("--game", "tetris", "--gamma", "0.5")).config
    assert (config.value("board"), config.value("reward"), config.gamma) == ("10x20", "cells", 0.5)
    stored = tomllib.loads(config.to_toml())
    assert "stage" not in stored and "death_penalty" not in stored
    assert make_config(stored) == config


def test_a_number_that_a_game_sets_can_be_unset() -> None:
    assert make_config({"game": "snake"}).final_gamma == 0.99
    config = make_plan(parse("--game", "snake", "--final-gamma", "none")).config
    assert config.final_gamma is None and make_config(tomllib.loads(config.to_toml())) == config
    assert command_line(config) == "mario-tui --game snake --final-gamma none"
    assert command_line(make_config({})) == "mario-tui --game mario"


def test_command_line_beats_file_only_if_given(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("steps = 500\nbatch_size = 64\n")
    plan = make_plan(parse("--batch-size", "32"), file)
    assert (plan.config.steps, plan.config.batch_size) == (500, 32)


def test_a_file_may_hold_what_the_command_line_makes_possible(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("num_actors = 3\n")
    assert make_plan(parse("--runner", "apex"), file).config.num_actors == 3
    assert make_plan({}, file, preset_name="apex-classic").config.num_actors == 3
    with pytest.raises(UserError, match=r"mine\.toml: num_actors is not an option of single"):
        make_plan(parse("--runner", "single"), file)
    with pytest.raises(ConfigError, match=r"^--num-actors is not an option of single"):
        make_plan(parse("--num-actors", "2", "--runner", "single"), file)


def test_a_relative_cartridge_means_what_it_meant_where_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_plan(parse("--rom", "game.nes")).config.value("rom") == str(tmp_path / "game.nes")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.toml").write_text('rom = "game.nes"')
    assert make_plan({}, Path("sub/mine.toml")).config.value("rom") == str(tmp_path / "sub" / "game.nes")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("stepps = 1", "unknown key 'stepps'; must be one of game, stage"),
        ("steps = 'x'", "steps must be a whole number of at least 1, got 'x'"),
        ("steps = ", "not valid TOML"),
        ("render = 1", "render must be true or false, got 1"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(content)
    with pytest.raises(UserError, match=f"bad.toml: {complaint}"):
        make_plan({}, file)


def test_every_option_has_help_and_a_flag() -> None:
    text = "".join(training_parser(game, runner).format_help() for game in games() for runner in RUNNERS)
    for name in options_of_all():
        assert "--" + name.replace("_", "-") in text


def test_a_home_folder_is_meant_by_its_sign(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('rom = "~/smb.nes"')
    config = make_plan({"run_dir": "~/runs"}, file).config
    assert (config.run_dir, config.value("rom")) == (str(Path.home() / "runs"), str(Path.home() / "smb.nes"))
    assert make_plan({"run_dir": "~nobody-of-that-name/runs"}).config.run_dir == "~nobody-of-that-name/runs"


def test_a_game_that_is_not_text_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"--game must be text, got \['mario'\]"):
        make_config({"game": ["mario"]})


def test_a_cluster_is_named_again_on_resume(tmp_path: Path) -> None:
    """The folder of a run may come from someone else, and joining a cluster hands over the user's token."""
    options = {"game": "snake", "runner": "apex", "ray": "10.0.0.1:6379", "amp": False, "run_dir": str(tmp_path)}
    run = create_run(make_config(options))
    add_checkpoint(run, 8)
    with pytest.raises(UserError, match=r"--ray must be given again to resume; the run used 10\.0\.0\.1:6379"):
        make_plan({}, resume=str(run.path))
    assert make_plan({"ray": "none"}, resume=str(run.path)).config.ray == "none"
    assert make_plan({"runner": "single"}, resume=str(run.path)).config.ray == "none"


def test_a_run_from_elsewhere_chooses_no_sink_of_an_installed_package(tmp_path: Path) -> None:
    run = create_run(
        make_config({"game": "snake", "amp": False, "sinks": "json-lines,upload", "run_dir": str(tmp_path)})
    )
    add_checkpoint(run, 8)
    assert make_plan({}, resume=str(run.path)).config.sinks == "json-lines,upload"
    elsewhere = tmp_path / "elsewhere"
    run.path.rename(elsewhere)
    with pytest.raises(UserError, match="--sinks must be given again to resume; the run used json-lines,upload"):
        make_plan({}, resume=str(elsewhere))
    assert make_plan({"sinks": "upload"}, resume=str(elsewhere)).config.sinks == "upload"


def test_a_run_from_before_an_option_does_not_take_its_games_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('game = "mario"\n')
    now, before = make_config({}), read_config(file)
    assert (now.advantage_learning, before.advantage_learning) == (0.5, 0.0)
    assert (now.final_advantage_learning, before.final_advantage_learning) == (0.95, None)


def test_a_run_from_before_sticky_frames_repeats_whole_steps_when_it_is_resumed(tmp_path: Path) -> None:
    run = create_run(make_config({"sticky_actions": 0.25, "run_dir": str(tmp_path)}))
    assert run.config().value("sticky_frames")
    file = run.path / "config.toml"
    file.write_text(file.read_text().replace("sticky_frames = true\n", ""))
    add_checkpoint(run, 8)
    for asked in ({}, {"sticky_actions": 0.1}):
        assert not make_plan(asked, resume=str(run.path)).config.value("sticky_frames")


@pytest.mark.parametrize(
    ("stored", "name", "now"),
    [
        ('game = "tetris"\ncurriculum = true\nfinal_gamma = 0.99\n', "final_gamma", None),
        ('game = "tetris"\nadvantage_learning = 0.5\n', "advantage_learning", 0.0),
    ],
)
def test_a_run_whose_options_were_accepted_once_is_read_without_them(
    stored: str, name: str, now: float | None, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(stored)
    assert read_config(file).value(name) == now
    with pytest.raises(ConfigError):  # in a new run
        make_config(tomllib.loads(stored))
    file.write_text(stored.replace("0.99", "7").replace("0.5", "7"))
    with pytest.raises(UserError, match=f"{file}: {name} must be"):
        read_config(file)


def test_the_gamma_that_rewards_contain_stays_on_resume(tmp_path: Path) -> None:
    run = create_run(make_config({"game": "tetris", "curriculum": True, "run_dir": str(tmp_path)}))
    add_checkpoint(run, 8)
    assert make_plan({"gamma": 0.97}, resume=str(run.path)).config.gamma == 0.97
    with pytest.raises(UserError, match=r"gamma must be 0.97, as in the checkpoint, got '0.5'"):
        make_plan({"gamma": 0.5}, resume=str(run.path))
