"""Observations and actions of any shape: what becomes of them, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    flatten,
)

from engine.agents import make_network
from engine.agents.networks import ImageAndNumbers
from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.games.gym.environment import check_unchanged, legal_actions, named_action, observed, sizes_of
from engine.games.gym.observations import Observations
from engine.games.gym.options import GymOptions, view_of
from engine.games.gym.spaces import Spaces, parsed
from tests.support.gym_envs import ROOM
from tests.support.program import json_lines, run_program
from tests.support.runners import RAY, RUNNERS


def config_of(space: Any, **options: Any) -> RunConfig:
    """Of a run of an environment with these observations."""
    spaces = msgspec.structs.replace(observed("", space), asked=("Some-v0", "{}", "none", False))
    return make_config({"game": "gym"}).changed(spaces=spaces.text(), env="Some-v0", network="auto", **options)


def reader_of(config: RunConfig) -> tuple[Spaces, Observations]:
    options = GymOptions.of(config)
    return parsed(options.spaces), Observations(parsed(options.spaces), view_of(options))


NUMBERS: list[Space[Any]] = [
    Dict({"speed": Box(-9, 9, (2, 2), np.float64), "gear": Discrete(3, start=-1)}),
    Tuple(
        (
            MultiBinary((2, 3)),
            Dict({"b": Discrete(2), "a": MultiDiscrete(np.array([[2, 3], [4, 5]]))}),
            Box(0, 9, (1,), int),
        )
    ),
    MultiDiscrete([3, 2], start=[5, -5]),
    Tuple((Discrete(32), Discrete(11), Discrete(2))),
]


@pytest.mark.parametrize("space", NUMBERS, ids=str)
def test_numbers_are_flattened_as_gymnasium_flattens_them(space: Space[Any]) -> None:
    config = config_of(space)
    _, reader = reader_of(config)
    assert config.spec.frame_dtype == "float32" and config.network_name == "mlp"
    space.seed(0)
    for _ in range(20):
        observation = space.sample()
        frame = reader.frame(reader.checked(observation))
        assert frame.shape == config.spec.frame_shape
        np.testing.assert_array_equal(frame, np.asarray(flatten(space, observation), np.float32))


CAMERA = Box(0, 255, (12, 14, 3), np.uint8)
BOTH = Dict({"camera": CAMERA, "joints": Box(-np.inf, np.inf, (5,), np.float32), "tool": Discrete(3)})
REST = Dict({name: space for name, space in BOTH.items() if name != "camera"})


@pytest.mark.parametrize("camera", [CAMERA, Box(0, 1, (12, 14), np.float32)], ids=str)
def test_an_image_and_numbers_are_two_inputs_of_one_network(camera: Box) -> None:
    config = config_of(both := Dict({**BOTH.spaces, "camera": camera}), frame_stack=2, normalize=False)
    (_, reader), spec = reader_of(config), config.spec
    both.seed(0)
    samples = [both.sample() for _ in range(6)]
    frames = np.stack([reader.frame(reader.checked(sample)) for sample in samples])
    assert frames.dtype == np.uint8 and frames.shape[1:] == spec.frame_shape
    network = make_network("grid", 2, spec.frame_shape, 4, numbers=spec.numbers, normalized=True)
    assert isinstance(network, ImageAndNumbers)
    images, numbers = network.parts(torch.from_numpy(frames).view(3, 2, *spec.frame_shape))
    pixels = [sample["camera"] if camera.dtype == np.uint8 else (255 * sample["camera"]).round() for sample in samples]
    planes = np.stack(pixels).reshape(3, 2, *camera.shape)
    assert np.array_equal(images, np.moveaxis(planes, -1, 2) if planes.ndim == 5 else planes)
    flat = np.array([flatten(REST, {name: sample[name] for name in REST.spaces}) for sample in samples])
    assert np.array_equal(numbers, flat.reshape(3, 2, 8))
    network.observe(torch.from_numpy(frames))
    np.testing.assert_allclose(network.get_buffer("scale.mean").numpy(), flat.mean(0), rtol=1e-5)
    assert network(torch.from_numpy(frames).view(3, 2, *spec.frame_shape)).shape == (3, 4)
    assert reader.image(frames[0]).shape[-2:] == camera.shape[:2]


BITS: Any = Box(0, 1, (3, 5, 4), np.bool_)


@pytest.mark.parametrize(
    ("space", "frame", "stack"),
    [
        (Box(0, 255, (256, 341, 4), np.uint8), (4, 84, 84), 4),  # RGBA
        (Box(0, 255, (90, 100, 2), np.uint8), (2, 84, 84), 4),
        (Box(0, 255, (100, 90, 1), np.uint8), (84, 84), 4),
        (Box(0, 255, (100, 90), np.uint8), (84, 84), 4),
        (Box(0, 255, (3, 90, 100), np.uint8), (84, 84), 4),
        (Box(0, 1, (90, 100, 3), np.float32), (84, 84), 4),
        (Box(0, 1, (90, 100), np.float32), (84, 84), 4),
        (Box(0, 255, (90, 100, 3), np.float64), (84, 84), 4),
        (Box(-1, 1, (90, 100, 3), np.float32), (84, 84), 4),
        (Box(0, 255, (90, 100, 3), np.int64), (84, 84), 4),
        (Box(0, 255, (1080, 1920, 3), np.uint8), (84, 84), 4),
        (Box(0, 255, (84, 84, 4), np.uint8), (4, 84, 84), 1),  # frames that were stacked
        (Box(0, 1, (10, 9), np.float32), (10, 9), 1),
        (Tuple((Box(0, 255, (90, 100, 3), np.uint8), Box(0, 1, (3, 40, 50), np.float32))), (2, 84, 84), 4),
        (Tuple((Box(0, 255, (9, 9, 2), np.uint8), BITS)), (5, 9, 9), 1),
    ],
    ids=str,
)
def test_images_of_every_kind_become_frames(space: Any, frame: tuple[int, ...], stack: int) -> None:
    config = config_of(space)
    _, reader = reader_of(config)
    assert (config.spec.frame_shape, config.spec.stack, config.spec.frame_dtype) == (frame, stack, "uint8")
    for edge, bright in (("low", 0), ("high", 255)):
        parts = [np.full(part.shape, getattr(part, edge), part.dtype) for part in getattr(space, "spaces", (space,))]
        given = reader.frame(reader.checked(tuple(parts) if isinstance(space, Tuple) else parts[0]))
        assert given.shape == frame and given.dtype == np.uint8
        lit = given[:, :5, :4] if frame == (5, 9, 9) else given
        assert (lit == bright).all()


def test_the_images_of_earlier_runs_stay_as_they_are() -> None:
    config = config_of(Box(0, 255, (256, 341, 4), np.uint8))
    old = GymOptions.of(config).spaces.replace('"resizes_all":true', '"resizes_all":false')
    assert config.changed(spaces=old).spec.frame_shape == (4, 256, 341)
    gray = gymnasium.make("CartPole-v1")
    gray.observation_space = Box(0, 1, (10, 9), np.float32)
    spaces = parsed(GymOptions.of(make_config({"game": "gym"})).spaces)
    check_unchanged("", gray, msgspec.structs.replace(spaces, shape=(90,)))  # was a vector


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"joints": np.full(5, np.nan)}, "the observation's joints has NaN"),
        ({"joints": np.zeros(4)}, r"the observation's joints must have the shape \(5,\), got \(4,\)"),
        ({"joints": "left"}, "the observation's joints must have numbers, got <U4"),
        ({"tool": 3}, "the observation's tool must be a whole number between 0 and 2, got 3"),
        ({"camera": np.zeros((12, 14), np.uint8)}, "the observation's camera must have the shape"),
        ({"camera": np.full((12, 14, 3), 256)}, "the observation's camera must be between 0 and 255, got 256 to 256"),
        ({"lamp": 1}, "an observation must have the parts camera, joints, tool, got camera, joints, tool, lamp"),
    ],
)
def test_what_is_wrong_with_a_part_is_told_with_its_name(change: dict[str, Any], said: str) -> None:
    _, reader = reader_of(config_of(BOTH))
    right = {"camera": np.zeros((12, 14, 3), np.uint8), "joints": np.zeros(5), "tool": 1}
    reader.checked(right)
    with pytest.raises(UserError, match=said):
        reader.checked(right | change)
    with pytest.raises(UserError, match="an observation must be a dict, got tuple"):
        reader.checked(tuple(right.values()))


def test_several_numbers_out_of_range_are_told_with_their_bounds() -> None:
    _, reader = reader_of(config_of(MultiDiscrete([3, 2], start=[5, -5])))
    with pytest.raises(UserError, match=r"whole numbers between \[5, -5\] and \[7, -4\], got \[8, -5\]"):
        reader.checked(np.array([8, -5]))
    _, reader = reader_of(config_of(Tuple((Discrete(2), Discrete(2)))))
    with pytest.raises(UserError, match="an observation must have the parts 0, 1, got 0"):
        reader.checked((1,))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Text(5), "its observations are Text("),
        (Sequence(Discrete(3)), "its observations are Sequence("),
        (OneOf((Discrete(3), Discrete(4))), "its observations are OneOf("),
        (Graph(Discrete(3), None), "its observations are Graph("),
        (Dict({"image": CAMERA, "mission": Text(5)}), "its observation's mission is Text("),
        (Tuple((Discrete(2), Tuple((Text(5),)))), "its observation's 1.0 is Text("),
        (Dict({}), "its observations have 0 numbers; accepted"),
        (Dict({"a": Box(0, 9, (4000,)), "b": Discrete(4000)}), "its observations have 8,000 numbers; accepted"),
    ],
    ids=str,
)
def test_observations_without_a_fixed_shape_are_refused_in_a_line(space: Space[Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        observed("Some-v0", space)
    assert refused.value.reason.startswith(f"Some-v0: {said}") and "\n" not in refused.value.reason


@pytest.mark.parametrize(
    "space", [MultiDiscrete([2, 3], start=[4, 0]), MultiDiscrete(np.array([[2], [2]])), MultiBinary(3)]
)
def test_every_combination_is_an_action(space: Any) -> None:
    sizes, firsts = sizes_of(space) or ((), ())
    count = int(np.prod(sizes))
    spaces = parsed(GymOptions.of(make_config({"game": "gym"})).spaces)
    spaces = msgspec.structs.replace(
        spaces, actions=tuple(map(str, range(count))), action_sizes=sizes, action_firsts=firsts
    )
    found = [named_action(action, space, spaces) for action in range(count)]
    assert all(space.contains(each) for each in found)
    ranges = [range(first, first + size) for first, size in zip(firsts, sizes, strict=True)]
    assert [tuple(each.reshape(-1).tolist()) for each in found] == list(product(*ranges))


def test_a_mask_of_each_number_masks_the_combinations() -> None:
    masks = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    assert legal_actions({"action_mask": masks}, 6).tolist() == [False, True, True, False, False, False]


@pytest.mark.process
@pytest.mark.parametrize(
    ("env_args", "line"),
    [
        ('{"actions": "many"}', "has 2,048 combinations of actions; accepted: up to 1,024"),
        ('{"actions": "text"}', "its actions are Text("),
        ('{"broken": "key"}', "in its first step: an observation must have the parts camera, joints, tool, got camera"),
    ],
)
def test_what_can_not_be_played_is_refused_before_the_run(env_args: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config({"game": ROOM, "env_args": env_args})
    assert line in refused.value.reason and "\n" not in refused.value.reason


@pytest.mark.process
@pytest.mark.parametrize(
    "runner",
    ["single", *(pytest.param(name, marks=pytest.mark.long) for name in ("parallel", "ddp", "apex", "ray"))],
)
def test_an_environment_with_images_numbers_and_combinations_is_learned(runner: str, tmp_path: Path) -> None:
    options = {**RUNNERS, "single": ("--runner", "single"), "ray": RAY}[runner]
    done = run_program(
        "--no-ui", "--log-format", "json", "--game", ROOM, "--normalize", *options, "--parallel-envs", "8",
        "--burnin", "300", "--batch-size", "32", "--replay-ratio", "4", "--steps", "2000", "--eval-every", "2000",
        "--epsilon-steps", "800", "--learning-rate", "1e-3", "--final-episodes", "0", cwd=tmp_path,
    )  # fmt: skip
    evaluations = [event for event in json_lines(done.stdout) if event["event"] == "evaluation"]
    assert evaluations[-1]["mean_return"] > 15  # of 20; at random 10
