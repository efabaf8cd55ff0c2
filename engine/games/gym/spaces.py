"""What a run knows of its environment: how observations become frames, the names of actions, and the keys of a person.

An environment tells its spaces only once it exists, and to make it may import the user's code. So a process of its own
(`engine.games.gym.describe`) asks it once, when the options are given; the run stores the answer as an option.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from engine.config.capabilities import DOWN, LEFT, MOVE_KEYS, RIGHT, START, UP, A, B, PersonKeys
from engine.config.fields import ConfigError
from engine.config.user_code import stops_by
from engine.errors import UserError
from engine.runtime.formats import parsed_json
from engine.runtime.processes import fresh_mark, how_it_ended
from engine.runtime.text import printable

ASKED_OF = ("env", "env_args", "env_import", "normalize")
"""The options on which the answer depends."""
STEP_TIMEOUT_S = 60.0
"""Seconds that one call of an environment may take, unless the user says otherwise."""
MEASURED_S = 2.0
"""Seconds after which no further call is measured."""
_CALLS = 12
"""The most calls of an environment, its import among them, that the process makes for an answer, besides those."""
SUCCESS = ("is_success", "success")
"""What of `info` tells that an episode has reached its goal."""
MAX_ACTIONS = 1024
MAX_NUMBERS = 4096
"""Numbers in a vector."""
SMALL = 36
"""Images with a shorter side are boards: each pixel counts, and the networks for screens don't fit."""
MAX_PIXELS = 2**25
"""Numbers in an image."""
_MAX_TEXT = 2**20


_Sizes = Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBERS)], ...], msgspec.Meta(max_length=MAX_NUMBERS)]
_Firsts = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)], ...], msgspec.Meta(max_length=MAX_NUMBERS)
]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Observations, or a part of them. It may come from a file, so every number has bounds."""

    path: Annotated[tuple[str | int, ...], msgspec.Meta(max_length=64)] = ()
    """The keys of `Dict` and `Tuple` that lead to a part."""
    kind: Literal["vector", "one-hot", "image"]
    """A vector of numbers, numbers as a vector with a single 1 for each, or an image."""
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBERS)], ...], msgspec.Meta(max_length=3)]
    """Of an observation: the numbers of a vector; height, width and planes of an image."""
    first_observation: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    """What the environment calls the first number of a one-hot vector."""
    sizes: _Sizes = ()
    firsts: _Firsts = ()
    """With several numbers in a one-hot vector: how many values each has, and the first of them."""
    planes_first: bool = False
    """Whether an image's planes are its first axis."""
    brightness: Annotated[float, msgspec.Meta(gt=0, le=255)] = 1.0
    """What makes an image's values 0 to 255, after `darkest` is taken off."""
    darkest: float = 0.0
    floats: bool = False
    """Whether an image's values are floats."""

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of an observation as the environment gives it; an image of one plane may lack that axis."""
        return (self.shape[2], *self.shape[:2]) if self.planes_first else self.shape


class Spaces(Part, frozen=True, kw_only=True):
    """The spaces of an environment. Kind and shape are those of all parts together; an image's shape is that of the
    largest, with the planes of all."""

    asked: tuple[str, str, str, bool]
    """The options `ASKED_OF` that they belong to."""
    parts: Annotated[tuple[Part, ...], msgspec.Meta(max_length=MAX_NUMBERS)] = ()
    """Of a `Dict` or `Tuple`, in Gymnasium's order."""
    numbers: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBERS)] = 0
    """Numbers beside images."""
    resizes_all: bool = False
    """Whether images of any number of planes are resized: not in runs of earlier versions."""
    actions: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=40)], ...],
        msgspec.Meta(min_length=1, max_length=MAX_ACTIONS),
    ]
    """Their names."""
    first_action: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0
    """What the environment calls the first one."""
    action_sizes: _Sizes = ()
    action_firsts: _Firsts = ()
    """Of `MultiDiscrete` and `MultiBinary`, whose combinations are the actions: as `sizes` and `firsts`."""
    masked: bool = False
    """Whether `info["action_mask"]` says which actions are legal."""
    step_limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Steps after which the environment cuts off an episode."""
    threshold: float | None = None
    """The mean return at which it counts as solved."""
    succeeds: bool = False
    """Whether `info["is_success"]` or `info["success"]` tells if an episode has reached its goal."""
    frames_per_s: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 10.0
    """Its own steps per second when somebody watches."""
    mean: Annotated[tuple[float, ...], msgspec.Meta(max_length=MAX_NUMBERS)] = ()
    deviation: Annotated[tuple[Annotated[float, msgspec.Meta(gt=0)], ...], msgspec.Meta(max_length=MAX_NUMBERS)] = ()
    """Mean and standard deviation of each number of a vector, with `normalize` in runs of earlier versions: frames are
    shifted and scaled by them, where the networks of newer runs do that."""
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
    def is_board(self) -> bool:
        """Return whether it is an image of cells."""
        return self.kind == "image" and min(self.shape[:2]) < SMALL

    def text(self) -> str:
        """As an option stores it."""
        return msgspec.json.encode(self).decode()


class Speed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast an environment is. Without numbers, it is too fast to matter."""

    step_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds per step, resets included."""
    waits: bool = False
    """Whether it waits for something, most of this time, instead of computing."""
    threads: bool = False
    """Whether two in two threads, at the same time, play as one does, and it does not fork."""
    draws: bool = False
    """Whether it draws from `random` or `numpy.random`."""


def speed_of(text: str) -> Speed:
    """A speed as an option stores it. Raises `ConfigError`."""
    try:
        return parsed_json(text, Speed)
    except ValueError as error:
        raise ConfigError("env_speed", f"can't be read ({printable(str(error))})") from None


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
        spaces = parsed_json(text, Spaces)
        for part in (spaces, *spaces.parts):
            if len(part.shape) != (3 if part.kind == "image" else 1) or math.prod(part.shape) > MAX_PIXELS:
                raise ValueError("the shape does not fit the kind, or is too large")
            if len(part.sizes) != len(part.firsts) or (part.sizes and sum(part.sizes) != part.shape[0]):
                raise ValueError("the sizes do not fit the shape")
        if spaces.parts and (spaces.kind, spaces.shape, spaces.numbers) != together(spaces.parts):
            raise ValueError("the parts do not fit the shape")
        if not all(part.path for part in spaces.parts) or len({part.path for part in spaces.parts}) < len(spaces.parts):
            raise ValueError("two parts have one place, or a part has none")
        if len(spaces.action_sizes) != len(spaces.action_firsts) or (
            spaces.action_sizes and math.prod(spaces.action_sizes) != len(spaces.actions)
        ):
            raise ValueError("the sizes do not fit the actions")
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


def together(parts: Sequence[Part]) -> tuple[str, tuple[int, ...], int]:
    """Kind, shape and numbers beside images of the parts of an observation."""
    images = [part.shape for part in parts if part.kind == "image"]
    numbers = sum(part.shape[0] for part in parts if part.kind != "image")
    if not images:
        return "vector", (numbers,), 0
    height, width, _ = max(images, key=lambda shape: shape[0] * shape[1])
    return "image", (height, width, sum(planes for *_, planes in images)), numbers


def label(env: str) -> str:
    """An id in short, without module and namespace."""
    return env.rpartition(":")[2].rpartition("/")[2]


def asked_of(values: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    """Return those of a run's options that decide its spaces."""
    env, env_args, env_import, normalize = (values[name] for name in ASKED_OF)
    return env, env_args, env_import, normalize


class Told(msgspec.Struct):
    """What the process says: the spaces, or why there are none, and which option is to blame."""

    spaces: Spaces | None = None
    speed: Speed = Speed()
    failure: str = ""
    field: str = "env"


@lru_cache(maxsize=256)
def ask(question: tuple[tuple[str, str, str, bool], float]) -> tuple[str, str]:
    """The spaces and the speed of an environment, as options store them, from a process that makes it, in which each
    call may take so many seconds. Raises `ConfigError` if it can't be used."""
    asked, limit_s = question
    written = msgspec.json.encode({**dict(zip(ASKED_OF, asked, strict=True)), "limit_s": limit_s})
    command = [sys.executable, "-P", "-m", "engine.games.gym.describe"]
    environ = {**os.environ, "PYGAME_HIDE_SUPPORT_PROMPT": "1", **fresh_mark()}
    with (
        tempfile.TemporaryFile() as answer,  # the environment's children could hold a pipe open
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process
            env=environ,
        ) as process,
    ):
        stops_by(process.kill)
        try:
            process.communicate(written, _CALLS * limit_s + MEASURED_S)
        except subprocess.TimeoutExpired:  # in native code, so that not even the process can say in which call
            said = f"{asked[0]} does not answer within {_CALLS * limit_s:g} s (--step-timeout {limit_s:g})"
            raise ConfigError("env", said) from None
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with what the environment has left running
        answer.seek(0)
        try:
            told = msgspec.json.decode(answer.read(), type=Told)
        except msgspec.DecodeError:
            how = how_it_ended(process.returncode)
            raise ConfigError("env", f"the process that makes {asked[0]} ended without an answer ({how})") from None
    if told.spaces is None:
        raise ConfigError(told.field, told.failure)
    return told.spaces.text(), msgspec.json.encode(told.speed).decode()


_WORDS = {
    "noop": 0, "no-op": 0, "none": 0, "nothing": 0, "idle": 0, "torque 0": 0,
    "pick up": A, "drop off": B, "fire": START,
    "left engine": LEFT, "main engine": UP, "right engine": RIGHT, "torque -1": LEFT, "torque +1": RIGHT,
    "left": LEFT, "right": RIGHT, "up": UP, "down": DOWN, "west": LEFT, "east": RIGHT, "north": UP, "south": DOWN,
}  # fmt: skip
"""What names of actions consist of, longer ones first, and the buttons that say the same."""
_WORD = re.compile("|".join(map(re.escape, _WORDS)))
_KEYS = {**MOVE_KEYS, "space": START, "x": A, "z": B}
_OWN = 0x100
"""The first of the buttons, above those of a joypad, for keys that only the environment knows."""
_MOST_OWN = 16


class EnvironmentKeys(NamedTuple):
    """Keys, and the actions of their buttons."""

    person: PersonKeys
    actions: dict[int, int]
    """By the buttons that are pressed together for each; 0: no button."""

    def action(self, pressed: int) -> int | None:
        """The action that needs the most of the pressed buttons and no others; None if there is none."""
        fitting = [buttons for buttons in self.actions if not buttons & ~pressed]
        return self.actions[max(fitting, key=int.bit_count)] if fitting else None


def keys_of(env: str, spaces: Spaces) -> EnvironmentKeys:
    """The keys of an environment. Held if it has an action for no key, because it can go on then. Raises `UserError` if
    there are none for an action."""
    actions: dict[int, int] = {}
    for action, name in enumerate(spaces.actions):
        if (named := _named(name)) is not None:
            actions.setdefault(named, action)
    buttons = {key: button for key, button in _KEYS.items() if any(each & button for each in actions)}
    if "" in spaces.keys:
        actions[0] = spaces.keys[""]
    for key, action in spaces.keys.items():
        own = next((each for each in actions if actions[each] == action and each.bit_count() == 1), None)
        if own is None:
            own = _OWN << sum(each >= _OWN for each in actions)
        if key and action != actions.get(0) and own < _OWN << _MOST_OWN:
            buttons[key], actions[own] = own, action
    without = [name for action, name in enumerate(spaces.actions) if action not in actions.values()]
    if not buttons or (without and not spaces.keys):
        raise UserError(
            f"--human: there are no keys for the actions {', '.join(without or spaces.actions)} of {label(env)}; it can"
            ' name them in metadata["action_names"] (left, right, up, down, fire, none), or its keys in'
            " get_keys_to_action()"
        )
    return EnvironmentKeys(PersonKeys(buttons, _help(buttons, actions, spaces.actions), held=0 in actions), actions)


def _named(action: str) -> int | None:
    """The buttons of an action's name, such as up, or upfire; None if it has other words."""
    buttons = 0
    for word in _WORD.findall(action.lower()):
        buttons |= _WORDS[word]
    return None if _WORD.sub("", action.lower()).strip(" _+-") else buttons


def _help(buttons: dict[str, int], actions: dict[int, int], names: tuple[str, ...]) -> dict[str, str]:
    """Return what each key does alone; those that move are a group."""
    alone = {key: names[actions[button]] for key, button in buttons.items() if button in actions}
    moves = [key for key in alone if buttons[key] == MOVE_KEYS.get(key)]
    help = {"arrows or WASD": ", ".join(dict.fromkeys(alone[key] for key in moves))} if moves else {}
    return help | {key: name for key, name in alone.items() if key not in moves}
