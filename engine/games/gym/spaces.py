"""What a run knows of its environment: how observations become frames, and the names of actions.

An environment tells its spaces only once it exists, and to make it may import the user's code. So a process of its own
(`engine.games.gym.describe`) asks it once, when the options are given; the run stores the answer as an option.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from engine.config.fields import ConfigError
from engine.runtime.exit_status import how_it_ended
from engine.runtime.text import printable

ASKED_OF = ("env", "env_args", "env_import", "normalize")
"""The options on which the answer depends."""
TIMEOUT_S = 120.0
"""Seconds within which the process has to answer: it imports the environment, and may play 10,000 steps."""
MAX_ACTIONS = 1024
MAX_NUMBERS = 4096
"""Numbers in a vector."""
SMALL = 36
"""Images with a shorter side are boards: each pixel counts, and the networks for screens don't fit."""
_MAX_PIXELS = 2**22
_MAX_TEXT = 2**20


class Spaces(msgspec.Struct, frozen=True, kw_only=True):
    """The spaces of an environment. They may come from a file, so every number has bounds."""

    asked: tuple[str, str, str, bool]
    """The options `ASKED_OF` that they belong to."""
    kind: Literal["vector", "one-hot", "image"]
    """A vector of numbers, a number as a vector with a single 1, or an image."""
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBERS)], ...], msgspec.Meta(max_length=3)]
    """Of an observation: the numbers of a vector; height, width and planes of an image."""
    first_observation: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    """What the environment calls the first number of a one-hot vector."""
    planes_first: bool = False
    """Whether an image's planes are its first axis."""
    brightness: Annotated[float, msgspec.Meta(gt=0, le=255)] = 1.0
    """What makes an image's values 0 to 255."""
    actions: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=40)], ...],
        msgspec.Meta(min_length=1, max_length=MAX_ACTIONS),
    ]
    """Their names."""
    first_action: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    """What the environment calls the first one."""
    masked: bool = False
    """Whether `info["action_mask"]` says which actions are legal."""
    step_limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Steps after which the environment cuts off an episode."""
    threshold: float | None = None
    """The mean return at which it counts as solved."""
    frames_per_s: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 10.0
    """Its own steps per second when somebody watches."""
    mean: Annotated[tuple[float, ...], msgspec.Meta(max_length=MAX_NUMBERS)] = ()
    deviation: Annotated[tuple[Annotated[float, msgspec.Meta(gt=0)], ...], msgspec.Meta(max_length=MAX_NUMBERS)] = ()
    """Mean and standard deviation of each number of a vector, with `normalize`."""
    farthest: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Numbers of deviations beyond which a number is clipped."""
    frame_skip: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """Frames of the game in each of its steps (Arcade Learning Environment)."""
    sticky_actions: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Probability with which it repeats the previous action by itself (Arcade Learning Environment, MinAtar)."""
    renders: bool = False
    """Whether it draws pictures (`rgb_array`)."""
    keys: dict[str, Annotated[int, msgspec.Meta(ge=0, lt=MAX_ACTIONS)]] = {}
    """The keys of a person, by Textual's names, and their actions, where the environment names them
    (`get_keys_to_action`); empty: no key."""

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of an observation as the environment gives it; an image of one plane may lack that axis."""
        return (self.shape[2], *self.shape[:2]) if self.planes_first else self.shape

    @property
    def is_board(self) -> bool:
        """Whether it is an image of cells."""
        return self.kind == "image" and min(self.shape[:2]) < SMALL

    def text(self) -> str:
        """As an option stores it."""
        return msgspec.json.encode(self).decode()


CARTPOLE = Spaces(
    asked=("CartPole-v1", "{}", "none", False),
    kind="vector",
    shape=(4,),
    actions=("left", "right"),
    step_limit=500,
    threshold=475.0,
    frames_per_s=50.0,
    renders=True,
).text()
"""Those of the environment that `--game gym` alone names."""


@lru_cache(maxsize=256)
def parsed(text: str) -> Spaces:
    """Spaces as an option stores them. Raises `ConfigError`."""
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError("longer than any that is written")
        spaces = msgspec.json.decode(text, type=Spaces)
        if len(spaces.shape) != (3 if spaces.kind == "image" else 1) or math.prod(spaces.shape) > _MAX_PIXELS:
            raise ValueError("the shape does not fit the kind, or is too large")
        if len(set(spaces.actions)) != len(spaces.actions):
            raise ValueError("two actions have one name")
        if not all(action < len(spaces.actions) for action in spaces.keys.values()):
            raise ValueError("a key is for an action that there is not")
        if spaces.mean and not len(spaces.mean) == len(spaces.deviation) == spaces.shape[0]:
            raise ValueError("mean and deviation do not fit the shape")
        if not all(map(math.isfinite, (*spaces.mean, *spaces.deviation))):
            raise ValueError("mean and deviation must be finite")
    except ValueError as error:
        raise ConfigError("spaces", f"can't be read ({printable(str(error))})") from None
    return spaces


def label(env: str) -> str:
    """An id in short, without module and namespace."""
    return env.rpartition(":")[2].rpartition("/")[2]


def asked_of(values: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    """Those of a run's options that decide its spaces."""
    env, env_args, env_import, normalize = (values[name] for name in ASKED_OF)
    return env, env_args, env_import, normalize


class Told(msgspec.Struct):
    """What the process says: the spaces, or why there are none, and which option is to blame."""

    spaces: Spaces | None = None
    failure: str = ""
    field: str = "env"


@lru_cache(maxsize=256)
def ask(asked: tuple[str, str, str, bool]) -> str:
    """The spaces of an environment, from a process that makes it. Raises `ConfigError` if it can't be used."""
    question = msgspec.json.encode(dict(zip(ASKED_OF, asked, strict=True)))
    try:
        answered = subprocess.run(
            [sys.executable, "-P", "-m", "engine.games.gym.describe"],
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            start_new_session=True,  # Ctrl-C is for this process
            env={**os.environ, "PYGAME_HIDE_SUPPORT_PROMPT": "1"},
        )
        told = msgspec.json.decode(answered.stdout, type=Told)
    except subprocess.TimeoutExpired:
        said = f"{asked[0]} does not answer within {TIMEOUT_S:.0f} s, in which it is made, reset and stepped"
        raise ConfigError("env", said) from None
    except msgspec.DecodeError:
        how = how_it_ended(answered.returncode)
        raise ConfigError("env", f"the process that makes {asked[0]} ended without an answer ({how})") from None
    if told.spaces is None:
        raise ConfigError(told.field, told.failure)
    return told.spaces.text()
