"""Options that were given never fail because of the defaults of others."""

from __future__ import annotations

import inspect
import itertools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from engine.config import run_config
from engine.config.command_line import command_line, given, preset, presets
from engine.config.fields import ConfigError, FieldSpec, is_int
from engine.config.game import game_of, games
from engine.config.reading import completed, make_config
from engine.config.run_config import belongs, specs_of
from engine.config.runners import RUNNERS
from mario_tui.commands.train import training_parser

TEXTS: dict[str, tuple[str, ...]] = {
    "stage": ("1-1", "2-1,2-2", "random", "game"),
    "actions": ("noop,right", "complex"),
    "device": ("cpu",),
    "ray": ("local",),
    "rom": ("game.nes",),
    "run_dir": ("runs",),
    "alerts": ("none", "stalled=4000,slow=none"),
    "sinks": ("json-lines",),
    "env": ("CartPole-v1", "FrozenLake-v1"),
    "env_args": ('{"sutton_barto_reward": true}',),
    "env_workers": ("auto", "none", "threads", "2"),
    "env_import": ("minatar.gym:register_envs",),
    "observation": ("auto", "raw"),
    "network": ("auto", "mlp"),
}
"""Values of the options that are text without choices."""


def extremes(spec: FieldSpec, game: str) -> tuple[Any, ...]:
    """The values of an option at which it could contradict another one: its bounds, its choices."""
    if spec.name == "board":
        return {"snake": ("3x3", "30x30"), "tetris": ("4x4", "12x26")}[game]
    if spec.name == "initial_policy":  # which has a test of its own
        return ()
    if isinstance(spec.default, bool):
        return (False, True)
    if spec.metadata["choices"] or spec.name in TEXTS:
        return tuple(spec.metadata["choices"] or TEXTS[spec.name])
    low, high = spec.metadata["low"], spec.metadata["high"]
    low = 1 if spec.name == "batch_size" else low
    many = 10**6 if high is None else high
    return low, many, int(low + (many - low) / 50) if is_int(spec) else low + (many - low) / 50


def each_value() -> Iterator[tuple[str, str, str, Any]]:
    for game, runner in itertools.product(games(), RUNNERS):
        for name, spec in specs_of(game).items():
            if name not in ("game", "runner") and not spec.metadata["hidden"] and belongs(name, game, runner):
                for value in extremes(spec, game):
                    yield game, runner, name, value


IMPOSSIBLE = {(name, "tetris") for name in ("advantage_learning", "munchausen", "quantiles", "noisy")}
"""Options that contradict a game by themselves, unless they are off."""


@pytest.mark.long
def test_no_option_fails_because_of_a_default() -> None:
    """Whatever its value, of whatever game and runner: no rule of `engine.config.run_config` is between an option and
    a default."""
    parser = training_parser()
    for game, runner, name, value in each_value():
        if (name, game) in IMPOSSIBLE and value:
            continue
        config = make_config({"game": game, "runner": runner, name: value})
        assert config.value(name) == value
        again = make_config(config.options())
        assert again == config, "a stored run means the same"
        options = parser.parse_args(shlex.split(command_line(config))[1:])
        assert make_config(given(options)) == config, "and so does its command line"


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Each rule: two options that contradict each other, and what follows if only the first is given.
    "curriculum": ({"curriculum": True, "stage": "1-2"}, {"stage": "1-1,1-2,1-3,1-4"}),
    "frame_skip": ({"swim_strokes": True, "frame_skip": 1}, {"frame_skip": 4}),
    "random_phase": ({"random_phase": True, "emulator": "nes-py"}, {"emulator": "native"}),
    "eval_noop_min": ({"eval_noop_min": 31, "eval_noop_max": 30}, {"eval_noop_max": 31}),
    "buffer_size": ({"buffer_size": 100, "parallel_envs": 64, "n_step": 5}, {"parallel_envs": 7}),
    "burnin": ({"burnin": 200_000, "buffer_size": 150_000}, {"buffer_size": 200_000}),
    "batch_size": (
        {"batch_size": 600, "runner": "parallel", "num_processes": 4, "buffer_size": 2_000},
        {"buffer_size": 100_000},
    ),
    "accumulate": ({"accumulate": 300, "batch_size": 299}, {"batch_size": 300}),
    "tau": ({"sync_every": 1_000, "tau": 0.01}, {"tau": 1.0}),
    "start_states": ({"start_states": 0.2, "emulator": "nes-py"}, {"emulator": "native"}),
    "halfway_starts": ({"halfway_starts": 0.3, "stage": "1-4"}, {"stage": "1-1"}),
    "guide": ({"guide": 0.2, "emulator": "nes-py"}, {"emulator": "native"}),
    "advantage_learning": ({"advantage_learning": 0.5, "game": "tetris"}, {"game": "mario"}),
    "munchausen": ({"munchausen": 0.9, "advantage_learning": 0.2}, {"advantage_learning": 0.0, "double_q": False}),
    "reward": ({"reward": "lines", "game": "mario"}, {"game": "tetris"}),
    "final_gamma": ({"game": "tetris", "curriculum": True, "final_gamma": 0.99}, {}),
    "num_actors": ({"num_actors": 3, "runner": "single"}, {"runner": "apex"}),
    "paths": ({"paths": True, "game": "tetris"}, {"game": "snake"}),
    "max_of_two": ({"game": "gym", "max_of_two": True, "frame_skip": 1}, {}),
    "sticky_actions": ({"game": "gym", "env": "MinAtar/Breakout-v1", "sticky_actions": 0.25}, {}),
    "normalize": ({"game": "gym", "env": "MinAtar/Breakout-v1", "normalize": True}, {}),
}


@pytest.mark.parametrize("field", PAIRS)
@pytest.mark.process
def test_a_default_follows_where_two_given_options_would_contradict_each_other(field: str) -> None:
    contradicting, follows = PAIRS[field]
    with pytest.raises(ConfigError) as refused:
        make_config(contradicting)
    assert refused.value.field == field and field in contradicting
    first = next(iter(contradicting))
    alone = make_config({first: contradicting[first]})
    assert {name: alone.value(name) for name in follows} == follows
    told = completed({first: contradicting[first]}).lines()
    if any(value != specs_of(alone.game)[name].default for name, value in follows.items()):
        assert any(f"follows --{first.replace('_', '-')}" in line for line in told)


def test_every_rule_has_its_pair() -> None:
    """The fields that `check_together` and the games name, but for those whose values are wrong by themselves."""
    modules = [run_config, *(inspect.getmodule(type(game_of(name))) for name in games())]
    sources = "".join(inspect.getsource(module) for module in modules if module is not None)
    named = set(re.findall(r'ConfigError\(\s*"(\w+)"', sources))
    by_themselves = {
        "actions", "alerts", "stage", "board", "ray", "device", "env_args", "env_workers", "spaces", "network",
    }  # fmt: skip
    assert named - by_themselves <= PAIRS.keys()


def test_pairs_of_bounds_fail_only_if_no_default_can_help() -> None:
    """Any two given values: the error, if any, is about options that were given."""
    numbers = ("buffer_size", "parallel_envs", "n_step", "burnin", "batch_size", "accumulate", "num_processes")
    specs = specs_of("mario")
    for one, other in itertools.combinations(numbers, 2):
        for first, second in itertools.product(extremes(specs[one], "mario"), extremes(specs[other], "mario")):
            values = {"runner": "parallel", one: first, other: second}
            try:
                make_config(values)
            except ConfigError as error:
                assert error.field in (one, other), values


@pytest.mark.process
def test_defaults_that_an_environment_brings_make_room_as_well() -> None:
    config = make_config({"game": "gym:MinAtar/Breakout-v1", "buffer_size": 110})
    assert (config.buffer_size, config.batch_size, config.n_step) == (110, 110, 1)


def test_lines_say_what_follows_what() -> None:
    assert completed({"sync_every": 1000}).lines() == ["--tau follows --sync-every 1,000: 1 instead of 0.004"]
    assert completed({"tau": 1}).lines() == ["--sync-every follows --tau 1: 1,000 instead of 1"]
    assert completed({"curriculum": True}).lines() == ["--stage follows --curriculum: 1-1,1-2,1-3,1-4 instead of 1-1"]
    assert completed({"buffer_size": 1000, "runner": "parallel", "num_processes": 8}).lines() == [
        "--parallel-envs follows --num-processes 8 and --buffer-size 1,000: 9 instead of 16",
        "--burnin follows --buffer-size 1,000: 1,000 instead of 10,000",
        "--batch-size follows --buffer-size 1,000 and --num-processes 8: 125 instead of 256",
    ]
    assert completed({"sync_every": 1000, "tau": 1}).lines() == completed({"n_step": 3}).lines() == []


@pytest.mark.parametrize("name", presets())
@pytest.mark.process
def test_no_preset_needs_a_default_to_follow(name: str) -> None:
    assert not [line for line in completed(preset(name)).lines() if " follows " in line]


def test_a_given_gamma_is_not_lowered_later_by_a_default() -> None:
    assert make_config({"game": "snake"}).final_gamma == 0.99
    assert make_config({"game": "snake", "gamma": 0.995}).final_gamma is None
    assert make_config({"game": "snake", "gamma": 0.995, "final_gamma": 0.9}).final_gamma == 0.9
    assert completed({"game": "snake", "gamma": 0.995}).lines() == [
        "--final-gamma follows --gamma 0.995: none instead of 0.99"
    ]
