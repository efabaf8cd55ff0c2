"""The options of Gymnasium environments, and what they make of an observation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from engine.config.fields import ConfigError, option
from engine.config.game import GameOptions, rows_of_numbers
from engine.games.gym.spaces import CARTPOLE, SMALL, STEP_TIMEOUT_S, Spaces, parsed

FALLBACK_STEPS = 108_000  # the frames of Machado et al. 2018 for Atari
"""Own steps after which episodes of an environment without a limit are cut off; otherwise one that goes round in
circles would never end, and with it an evaluation."""

MOST_WORKERS = 256
_EVALUATION_STEPS = 5_000
"""The same in evaluations, where observations are no images: a policy that goes in circles would cost minutes."""


@dataclass(frozen=True, kw_only=True)
class GymOptions(GameOptions):
    """Options of Gymnasium environments."""

    choose_game = False

    env: str = option(
        "CartPole-v1",
        "environment",
        "Gymnasium id; MODULE:ID imports the module first, which may be a file in the current folder. --game gym:ID "
        "says the same",
        metavar="ID",
        usual=("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3", "FrozenLake-v1", "MinAtar/Breakout-v1"),
        roles=("task", "network", "policy", "import"),
    )
    env_args: str = option(
        "{}",
        "environment",
        """arguments of the environment, a JSON object: '{"is_slippery": false}'; in a file also a table""",
        metavar="JSON",
        roles=("task", "policy", "import"),
    )
    env_import: str = option(
        "none",
        "environment",
        "MODULE:FUNCTION that registers ids, called before the environment is made",
        roles=("task", "policy", "import"),
    )
    observation: str = option(
        "auto",
        "environment",
        "how images are seen: WxH-gray or WxH-color (84x84-gray), or raw; auto: 84x84-gray, but raw with a side below "
        "36. Only three planes become gray; smaller ones with other than 1 or 3 planes stay raw",
        usual=("auto", "raw", "84x84-gray", "84x84-color"),
        metavar="VIEW",
        roles=("task", "network", "policy"),
    )
    frame_stack: int | None = option(
        None,
        "environment",
        "frames in an observation; none: 4 of images that are resized, else 1",
        low=1,
        high=16,
        roles=("task", "network", "policy"),
    )
    normalize: bool = option(
        False,
        "environment",
        "the network shifts and scales each number of a vector by its mean and deviation in the first 100,000 frames",
        roles=("task", "network", "policy"),
    )
    frame_skip: int = option(
        1, "environment", "environment's own steps per action", low=1, high=60, roles=("task", "policy")
    )
    max_of_two: bool = option(
        False,
        "environment",
        "an image is the brighter of the last two frames, for games that flicker",
        roles=("task", "policy"),
    )
    reward: str = option(
        "raw", "environment", "raw, or sign (Mnih et al. 2015: -1, 0 or 1)", choices=("raw", "sign"), roles=("task",)
    )
    reward_scale: float = option(
        1.0,
        "environment",
        "factor of rewards for the agent; returns are shown without it",
        low=1e-6,
        high=1e6,
        roles=("task",),
    )
    sticky_actions: float = option(
        0.0,
        "environment",
        "probability of repeating the previous action in each of the environment's own steps (Machado et al. 2018: "
        "0.25)",
        low=0.0,
        high=0.99,
        roles=("task", "policy"),
    )
    noop_max: int = option(
        0,
        "environment",
        "maximum number of steps with action 0 at the start of an episode (Mnih et al. 2015: 30)",
        low=0,
        high=255,
        roles=("task", "policy"),
    )
    life_ends: bool = option(
        False,
        "environment",
        "the loss of a life ends what the agent learns from, though the episode goes on",
        roles=("task",),
    )
    max_episode_steps: int | None = option(
        None,
        "environment",
        "steps after which an episode is cut off; none: the limit that it is registered with, else "
        f"{FALLBACK_STEPS:,}, and {_EVALUATION_STEPS:,} in evaluations unless observations are images",
        low=1,
        roles=("task", "policy"),
    )
    env_workers: str = option(
        "auto",
        "environment",
        "what steps the lanes of a process that plays: none (itself), threads, or so many worker processes; auto: the "
        "fastest by a measured start of the environment, itself if that draws from random or numpy.random",
        usual=("auto", "none", "threads", "2", "4"),
        metavar="WORKERS",
    )
    env_speed: str = option("{}", "environment", "how fast the environment was before the run", hidden=True)
    step_timeout: float = option(
        STEP_TIMEOUT_S,
        "environment",
        "seconds that one call of the environment may take (make, reset, step, render or close); one that takes longer "
        "counts as hung",
        low=0.1,
        high=86_400,
    )
    random_hold: int = option(
        1,
        "exploration",
        "steps for which a random action is held at most; one is held for n steps in proportion to 1 / n^2 (Dabney et "
        "al. 2020); must be 1 if actions may be illegal",
        low=1,
        high=1024,
    )
    network: str = option(
        "auto",
        "learning",
        "mlp-128 or mlp (vectors; layers of 128 or 256 units), grid or minatar (small images), nature, small, "
        "impala or impala-wide (images); MODULE:CLASS: your own; "
        "auto: mlp, grid or nature",
        usual=("auto", "mlp-128", "mlp", "grid", "minatar", "nature", "small", "impala", "impala-wide"),
        roles=("network", "import"),
    )
    spaces: str = option(
        CARTPOLE, "environment", "what the environment has told of its spaces", hidden=True, roles=("task", "policy")
    )


def evaluation_limit(options: GymOptions) -> int | None:
    """Own steps after which evaluations cut off an episode; None: those of the environment's own limit."""
    spaces = parsed(options.spaces)
    if options.max_episode_steps or spaces.step_limit:
        return options.max_episode_steps
    return FALLBACK_STEPS if spaces.kind == "image" else _EVALUATION_STEPS


_VIEW = re.compile(r"(\d{1,4})x(\d{1,4})(?:-(gray|color))?")
_LARGEST = 512
"""Pixels of a side of a resized image."""
_STACK = 4
"""Frames per observation of a resized image (Mnih et al. 2015)."""
_COLORS = 3
_USUAL = 84
"""Pixels of a side of an image that `auto` resizes."""


@dataclass(frozen=True)
class View:
    """What becomes of an observation."""

    frame_shape: tuple[int, ...]
    """Of a frame: the numbers of a vector, (planes, height, width), or (height, width) in gray."""
    dtype: Literal["uint8", "float32"]
    stack: int
    size: tuple[int, int] | None = None
    """Height and width of images that are resized."""
    gray: bool = False
    """Whether three planes become one."""
    number_rows: int = 0
    """Last rows of a frame, which hold numbers; see `engine.config.game.Spec`."""


def view_of(options: GymOptions) -> View:
    """The view that the options choose. Raises `ConfigError` if the environment's observations can't be seen so."""
    spaces, wanted = parsed(options.spaces), options.observation
    if spaces.kind != "image":
        if wanted not in ("auto", "raw"):
            raise ConfigError("observation", f"must be auto or raw, got {wanted!r}: {options.env} has no images")
        return View(spaces.shape[:1], "float32", options.frame_stack or 1)
    *size, planes = spaces.shape
    images = [part.shape for part in spaces.parts or (spaces,) if part.kind == "image"]
    is_plain = all(shape[2] in (1, _COLORS) for shape in images)
    stays = not is_plain and (not spaces.resizes_all or math.prod(size) <= _USUAL**2)
    found = _VIEW.fullmatch(f"{_USUAL}x{_USUAL}-gray" if wanted == "auto" else wanted)
    if wanted == "raw" or (wanted == "auto" and (spaces.is_board or stays)):
        several = len({shape[:2] for shape in images}) > 1
        return _image_view(spaces, planes, (size[0], size[1]), options.frame_stack or 1, resized=several)
    sides = tuple(int(side) for side in found.groups()[:2]) if found else ()
    if found is None or not all(SMALL // 2 <= side <= _LARGEST for side in sides):
        accepted = f"auto, raw, or WxH-gray or WxH-color with {SMALL // 2} to {_LARGEST} pixels a side"
        raise ConfigError("observation", f"must be {accepted}, got {wanted!r}")
    gray = found[3] != "color"
    if not gray and all(shape[2] == 1 for shape in images):
        raise ConfigError("observation", f"must be raw or gray, got {wanted!r}: images of {options.env} have no colors")
    if gray:
        planes = sum(1 if shape[2] == _COLORS else shape[2] for shape in images)
    return _image_view(spaces, planes, (sides[1], sides[0]), options.frame_stack or _STACK, resized=True, gray=gray)


def _image_view(
    spaces: Spaces, planes: int, size: tuple[int, int], stack: int, *, resized: bool, gray: bool = False
) -> View:
    shape = size if planes == 1 else (planes, *size)
    rows = rows_of_numbers(spaces.numbers, shape)
    return View((*shape[:-2], size[0] + rows, size[1]), "uint8", stack, size if resized else None, gray, rows)
