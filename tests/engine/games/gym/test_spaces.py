"""What an environment tells of itself, and what is refused before a run begins."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest

from engine.config.command_line import command_line
from engine.config.fields import ConfigError
from engine.config.reading import as_given, completed, load_toml, make_config, with_task
from engine.envs.factory import describe_task
from engine.errors import UserError
from engine.games.gym.environment import observed
from engine.games.gym.game import Gym
from engine.games.gym.observations import Observations
from engine.games.gym.options import View
from engine.games.gym.spaces import CARTPOLE, STEP_TIMEOUT_S, Spaces, ask, parsed
from tests.support.gym_envs import CORRIDOR, FAULTY, HERE, SQUARES

pytestmark = pytest.mark.process


def told(env: str, env_args: str = "{}", normalize: bool = False) -> Spaces:
    return parsed(ask(((env, env_args, "none", normalize), STEP_TIMEOUT_S))[0])


def test_those_of_the_default_are_what_it_tells() -> None:
    assert ask((parsed(CARTPOLE).asked, STEP_TIMEOUT_S))[0] == CARTPOLE


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("Acrobot-v1", {"kind": "vector", "shape": (6,), "step_limit": 500, "threshold": -100.0}),
        ("FrozenLake-v1", {"kind": "one-hot", "shape": (16,), "actions": ("left", "down", "right", "up")}),
        ("Taxi-v4", {"kind": "one-hot", "shape": (500,), "masked": True}),
        ("MinAtar/Breakout-v1", {"kind": "image", "shape": (10, 10, 4), "actions": ("none", "left", "right")}),
        (f"{HERE}:Squares-v0", {"kind": "image", "shape": (60, 80, 3), "first_action": 1, "frames_per_s": 30.0}),
        (
            f"{HERE}:Corridor-v0",
            {
                "kind": "image",
                "shape": (3, 8, 2),
                "masked": True,
                "brightness": 255.0,
                "renders": False,
                "frames_per_s": 10.0,
            },
        ),
        (f"{HERE}:Faulty-v0", {"kind": "vector", "shape": (3,), "renders": False, "actions": ("0", "1")}),
    ],
)
def test_an_environment_tells_its_spaces(env: str, expected: dict[str, Any]) -> None:
    spaces = msgspec.structs.asdict(told(env))
    assert {name: spaces[name] for name in expected} == expected


def test_an_environment_that_does_not_close_tells_its_spaces() -> None:
    assert told(f"{HERE}:Corridor-v0", '{"broken": "close"}').shape == (3, 8, 2)
    assert told(f"{HERE}:Squares-v0", '{"closes": false}').renders


def test_an_environment_without_a_screen_has_no_pictures() -> None:
    assert not told(f"{HERE}:Squares-v0", '{"screen": false}').renders


def test_a_run_of_an_earlier_version_normalizes_its_frames_and_a_new_one_in_its_network() -> None:
    asked = ("CartPole-v1", "{}", "none", True)
    old = msgspec.structs.replace(parsed(CARTPOLE), asked=asked, mean=(1.0,) * 4, deviation=(2.0,) * 4)
    assert parsed(old.text().replace('"farthest":10.0,', "")) == old
    seen = Observations(old, View((4,), "float32", 1))
    assert seen.frame(seen.checked(np.array([1, 3, 99, -99]))).tolist() == [0, 1, 10, -10]
    new = parsed(ask((asked, STEP_TIMEOUT_S))[0])
    assert not new.mean
    for spaces in (old, new):
        config = make_config({"game": "gym", "normalize": True}, defaults={"spaces": spaces.text()})
        assert config.spec.normalized == (spaces is new)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"game": "gym:Cartpol-v1"}, "--env Environment Cartpol-v1 doesn't exist; did you mean CartPole-v1?"),
        (
            {"game": "gym:SuperMarioBros-1-1-v3"},
            "--env Environment SuperMarioBros-1-1-v3 doesn't exist; did you mean "
            "engine.games.gymnasium_api:mario_tui/SuperMarioBros-1-1-v0?",
        ),
        ({"game": "gym:Nowhere/Env-v0"}, "--env Namespace Nowhere not found. Have you installed the proper package"),
        ({"game": "gym:Pendulum-v1"}, "--env Pendulum-v1: its actions are Box(-2.0, 2.0, (1,), float32); accepted"),
        ({"game": "gym:nowhere:Env-v0"}, "--env needs the module nowhere, which is not installed"),
        ({"game": "gym:"}, "--game must have what is played behind the colon, as in gym:CartPole-v1, got gym:"),
        ({"game": "gym", "env_args": "[1]"}, "--env-args must be a JSON object, got '[1]'"),
        ({"game": "gym", "env_args": '{"wings": 2}'}, "--env-args CartPole-v1 does not take them: "),
        (
            {"game": CORRIDOR, "env_args": '{"broken": "reset"}'},
            f"--env {HERE}:Corridor-v0: reset raises SystemExit: no screen (gym_",
        ),
        (
            {"game": CORRIDOR, "env_args": '{"start": 5000000000}'},
            f"--env {HERE}:Corridor-v0: its actions are Discrete(2, start=5000000000); accepted: a start within 2^31",
        ),
        ({"game": "gym", "env_import": "sys:exit"}, "--env-import sys:exit fails: SystemExit"),
        ({"game": "gym", "env_import": "json:loads"}, "--env-import json:loads fails: TypeError: "),
        ({"game": "gym", "env_import": "json"}, "--env-import must be MODULE:NAME, got 'json'"),
        (
            {"game": CORRIDOR, "frame_skip": 2},
            f"--frame-skip must be 1, because {HERE}:Corridor-v0 masks actions, got 2",
        ),
        (
            {"game": CORRIDOR, "random_hold": 5},
            f"--random-hold must be 1, because {HERE}:Corridor-v0 masks actions, got 5",
        ),
        ({"game": CORRIDOR, "noop_max": 5}, f"--noop-max must be 0, because {HERE}:Corridor-v0 masks actions, got 5"),
        ({"game": "gym", "env_import": "json:nothing"}, "--env-import json has no nothing"),
        ({"game": "gym", "observation": "84x84-gray"}, "--observation must be auto or raw, got '84x84-gray'"),
        ({"game": SQUARES, "observation": "84"}, "--observation must be auto, raw, or WxH-gray or WxH-color"),
        (
            {"game": "gym", "network": "nature"},
            "--network must be one of auto, mlp, mlp-128, MODULE:CLASS, got 'nature'",
        ),
        ({"game": SQUARES, "normalize": True}, "--normalize must be off for "),
        (
            {"game": "gym:ALE/Pong-v5", "max_of_two": True},
            """--max-of-two needs --env-args '{"frameskip": 1}': ALE/Pong-v5 skips 4 frames itself""",
        ),
        (
            {"game": "gym:ALE/Pong-v5", "sticky_actions": 0.25},
            "--sticky-actions must be 0, because ALE/Pong-v5 repeats actions itself (with a probability of 0.25, which",
        ),
        (
            {"game": "gym:MinAtar/Breakout-v1", "sticky_actions": 0.25},
            "--sticky-actions must be 0, because MinAtar/Breakout-v1 repeats actions itself (with a probability of 0.1",
        ),
    ],
)
def test_what_can_not_be_played_is_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(options)
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)


BROKEN = """
import gymnasium, numpy

class Broken(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)
    __init__ = lambda self: None
    def reset(self, **_):
        return numpy.zeros(2), {}
    def step(self, action):
        numpy.linalg.inv(numpy.zeros((2, 3)))

"""


@pytest.mark.parametrize(
    ("method", "result", "said"),
    [
        ("reset", "numpy.zeros(2)", "reset must return (observation, info), got an array float64 [2]"),
        ("reset", "(numpy.zeros(2), None)", "info must be a dict, got NoneType"),
        ("reset", "(numpy.zeros(3), {})", "after its reset: an observation must have the shape (2,), got (3,)"),
        (
            "reset",
            "(numpy.zeros(2), {'action_mask': [1, 1, 1]})",
            "after its reset: an action_mask must have 2 values, one of them not 0, got the shape (3,)",
        ),
        (
            "reset",
            "(numpy.zeros(2), {'action_mask': [0, 0]})",
            "after its reset: an action_mask must have 2 values, one of them not 0, got only zeros",
        ),
        (
            "step",
            "(numpy.zeros(2), 0.0, False, {})",
            "in its first step: step must return (observation, reward, terminated, truncated, info), got 4 values",
        ),
        (
            "step",
            "(numpy.zeros(2), numpy.ones(2), False, False, {})",
            "in its first step: a reward must be a number, got an array float64 [2]",
        ),
        ("step", "(numpy.zeros(2), '1.5', False, False, {})", "in its first step: a reward must be a number, got str"),
        (
            "step",
            "(numpy.zeros(2), 1, None, False, {})",
            "in its first step: terminated and truncated must be True or False, got None",
        ),
    ],
)
def test_what_an_environment_must_give_is_said_before_the_run(
    method: str, result: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.py"
    code = f"Broken.{method} = lambda self, *_, **__: {result}"
    path.write_text(f"{BROKEN}{code}\ngymnasium.register('Broken-v0', Broken)\n")
    with pytest.raises(ConfigError) as refused:
        make_config({"game": f"gym:{path}:Broken-v0"})
    assert refused.value.reason == f"{path}:Broken-v0: {said}"


def test_an_id_that_a_module_does_not_register_brings_those_that_it_does(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("\n".join([BROKEN, *(f"gymnasium.register('{id}-v0', Broken)" for id in ("Maze", "Door"))]))
    with pytest.raises(ConfigError) as refused:
        make_config({"game": f"gym:{path}:Key"})
    assert refused.value.reason == f"Environment Key doesn't exist; {path} registers: Door-v0, Maze-v0"


class Mission(gymnasium.spaces.Space[str]):
    """As MiniGrid's, which can't be flattened."""


SPACES = gymnasium.spaces
GRID = {"direction": SPACES.Discrete(4), "image": SPACES.Box(0, 255, (7, 7, 3), np.uint8), "mission": Mission()}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (SPACES.Dict(GRID), "; gymnasium.wrappers.FilterObservation leaves parts out"),
        (SPACES.MultiDiscrete([3000, 3000]), ", and Dict and Tuple of these"),  # too many numbers
        (SPACES.Box(0, 255, (4320, 7680, 3), np.uint8), "accepted: up to 33,554,432 numbers, and 4,096 a side"),
    ],
)
def test_observations_that_are_refused_come_with_advice_that_works(space: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        observed("Some-v0", space)
    assert str(refused.value).endswith(said)


def test_spaces_of_another_package_are_called_so() -> None:
    class Discrete:
        __module__ = "gym.spaces.discrete"
        __repr__ = __str__ = lambda self: "Discrete(7)"

    with pytest.raises(
        ConfigError, match=r"are Discrete\(7\), of the package gym instead of gymnasium.spaces; accepted"
    ):
        observed("Some-v0", Discrete())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "raw", "frame"),
    [
        ((8, 8, 12), (8, 8, 12), (12, 8, 8)),  # a chess board
        ((12, 8, 8), (12, 8, 8), (12, 8, 8)),
        ((4, 84, 84), (4, 84, 84), (4, 84, 84)),  # frames that were stacked
        ((10, 9, 4), (10, 9, 4), (4, 10, 9)),
        ((4, 10, 9), (4, 10, 9), (4, 10, 9)),
    ],
)
def test_planes_are_the_axis_that_differs(shape: tuple[int, ...], raw: tuple[int, ...], frame: tuple[int, ...]) -> None:
    spaces = msgspec.structs.replace(
        observed("", gymnasium.spaces.Box(0, 255, shape, np.uint8)), asked=("Board-v0", "{}", "none", False)
    )
    assert spaces.raw_shape == raw
    config = make_config({"game": "gym"}).changed(spaces=spaces.text(), env="Board-v0", network="auto")
    assert config.spec.frame_shape == frame


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nowhere", "needs the module nowhere, which is not installed (broken.py:12)"),
        (
            "import argparse; argparse.ArgumentParser().parse_args(['--level'])",
            "FILE can't be imported: the module broken reads the command line (argparse), which is this program's "
            "(broken.py:12)",
        ),
        ("{}['a']", "FILE can't be imported: KeyError: 'a' (broken.py:12)"),
        (
            "Broken.__init__ = lambda self: len(5)",
            "Broken-v0 can't be made: TypeError: object of type 'int' has no len() (broken.py:12)",
        ),
        (
            "Broken.reset = lambda self, **_: int('x' * 999)",
            "FILE:Broken-v0: reset raises ValueError: invalid literal ",
        ),
        (
            "",
            "FILE:Broken-v0: in its first step: LinAlgError: Last 2 dimensions of the array must be square (brok",
        ),
    ],
)
def test_an_error_of_the_users_code_is_told_with_its_type_and_place(code: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(f"{BROKEN}{code}\ngymnasium.register('Broken-v0', Broken)\n")
    with pytest.raises(ConfigError) as refused:
        make_config({"game": f"gym:{path}:Broken-v0", "normalize": True})
    line = refused.value.reason
    assert line.startswith(said.replace("FILE", str(path))) and "(broken.py:" in line and len(line) < 500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"game": "gym:Acrobot-v1"}, ""),
        ({"game": "gym:MinAtar/Breakout-v1"}, ""),
        ({"game": "gym:FrozenLake-v1", "env_args": '{"is_slippery":false}'}, "--env-args '{\"is_slippery\":false}' "),
        ({"game": "gym:Acrobot-v1", "normalize": True}, "--normalize "),
    ],
)
def test_a_stored_run_knows_its_spaces_without_asking(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask would run code, which may be a stranger's: not even to show the command of a run, or to resume it."""
    config = make_config({**options, "seed": 3})
    ask.cache_clear()
    monkeypatch.setattr("sys.executable", "/bin/false")  # nothing is asked from here on
    assert make_config(config.options()) == config
    assert with_task(options).items() <= (given := as_given(config.options())).items() and given["seed"] == 3
    assert make_config(given, defaults=config.options()) == config
    written = shlex.split(f"mario-tui --game {options['game']} --seed 3 {words}")
    assert sorted(shlex.split(command_line(config))) == sorted(written)
    with pytest.raises(ConfigError, match="ended without an answer"):
        make_config({"game": "gym:MountainCar-v0"})


def test_actions_that_an_environment_repeats_by_itself_are_told() -> None:
    for options, share in (({}, 0.1), ({"env_args": '{"sticky_action_prob": 0.0}', "sticky_actions": 0.25}, 0.25)):
        config = make_config({"game": "gym:MinAtar/Breakout-v1", "noop_max": 3, **options})
        told = Gym().trained_conditions(describe_task(config))
        assert told == {"noop_min": 0, "noop_max": 3, "sticky_actions": share}


def test_spaces_of_another_environment_are_refused() -> None:
    other = make_config({"game": "gym:Acrobot-v1"}).value("spaces")
    with pytest.raises(ConfigError, match="--spaces must be those of its environment"):
        make_config({"game": "gym", "spaces": other})
    assert make_config({"game": "gym"}, defaults={"spaces": other}).value("spaces") == CARTPOLE


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [0]}, {"shape": [4, 4]}, {"actions": []}, {"actions": ["a", "a"]}, {"kind": "image"},
        {"mean": [0.0], "deviation": [1.0]}, {"deviation": [0.0] * 4, "mean": [0.0] * 4}, {"frames_per_s": -1},
        {"shape": [10**9]}, {"brightness": 1e9},
    ],
)  # fmt: skip
def test_spaces_that_nobody_can_have_written_are_refused(change: dict[str, Any]) -> None:
    text = msgspec.json.encode(msgspec.json.decode(CARTPOLE) | change).decode()
    with pytest.raises(ConfigError, match="--spaces can't be read"):
        make_config({"game": "gym", "spaces": text})


def test_a_game_may_have_its_task_behind_it() -> None:
    assert make_config({"game": "snake:8x8"}).value("board") == "8x8"
    config = make_config({"game": "gym:FrozenLake-v1", "env_args": '{"is_slippery": false}'})
    assert (config.game, config.task, config.spec.frame_shape) == ("gym", "FrozenLake-v1", (16,))
    assert not any("spaces" in line for line in completed({"game": "gym:FrozenLake-v1"}).lines())
    assert make_config({"game": "snake:8x8", "board": "8x8"}).value("board") == "8x8"
    with pytest.raises(ConfigError, match="--board must be given once, got '1x1' besides --game snake:8x8"):
        make_config({"game": "snake:8x8", "board": "1x1"})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('board = "1x1"', "board must be given once, got '1x1' besides --game snake:8x8"),
        ("use_mmap_buffer = 1", "use_mmap_buffer must be true or false, got 1"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(line: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'game = "snake:8x8"\n{line}\n')
    with pytest.raises(UserError) as refused:
        load_toml(file)
    assert str(refused.value) == f"{file}: {complaint}"


def test_long_ids_are_shown_in_short() -> None:
    assert make_config({"game": FAULTY}).task_label == "Faulty-v0"
    assert make_config({"game": "gym:MinAtar/Breakout-v1"}).task_label == "Breakout-v1"


def test_arguments_may_be_a_table_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    file.write_text('game = "gym:FrozenLake-v1"\n[env_args]\nis_slippery = false\nmap_name = "8x8"\n')
    config = make_config(load_toml(file))
    assert config.spec.frame_shape == (64,) and config.value("env_args") == '{"is_slippery":false,"map_name":"8x8"}'
