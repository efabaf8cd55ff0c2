"""What an environment must be and give to be played, and the words for what is wrong with it."""

from __future__ import annotations

from typing import Any

import gymnasium
import msgspec
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, Space
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.errors import UserError
from engine.games.gym.spaces import MAX_NUMBERS, Spaces, label
from engine.runtime.text import printable

_ACCEPTED = (
    f"accepted: Box of 1 to {MAX_NUMBERS:,} numbers, images (Box of two axes, or three with the planes first or last, "
    "uint8 or bool; with three also numbers from 0 to 1), Discrete and MultiBinary"
)
_NUMBERS = (float, int, np.generic)


def reset_result(given: Any) -> tuple[Any, dict[str, Any]]:
    """Observation and info, as `reset` gives them. Raises `UserError` if it gives something else."""
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise UserError(f"reset must return (observation, info), got {_kind(given)}")
    return given[0], _info(given[1])


def step_result(given: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Observation, reward, end, cut-off and info, as `step` gives them. Raises `UserError` if it gives something
    else."""
    if not (isinstance(given, tuple | list) and len(given) == 5):
        raise UserError(f"step must return (observation, reward, terminated, truncated, info), got {_kind(given)}")
    observation, reward, terminated, truncated, info = given
    if not isinstance(reward, _NUMBERS) and (reward is None or isinstance(reward, str) or np.ndim(reward)):
        raise UserError(f"a reward must be a number, got {_kind(reward)}")
    if terminated is None or truncated is None:
        raise UserError("terminated and truncated must be True or False, got None")
    return observation, float(reward), bool(terminated), bool(truncated), _info(info)


def _info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise UserError(f"info must be a dict, got {type(info).__name__}")
    return info


def legal_actions(info: dict[str, Any], count: int) -> NDArray[np.bool_]:
    """The mask, bool [count]. Raises `UserError` if it has another shape or leaves no action."""
    mask = np.asarray(info.get("action_mask", ())) != 0
    if mask.shape != (count,) or not mask.any():
        got = "only zeros" if mask.shape == (count,) else f"the shape {mask.shape}" if "action_mask" in info else "none"
        raise UserError(f"an action_mask must have {count} values, one of them not 0, got {got}")
    return mask


def check_unchanged(env: str, made: gymnasium.Env[Any, Any], spaces: Spaces) -> None:
    """Raise `ConfigError` if an environment's spaces differ from those that a run or a policy has stored: the same
    number could mean another action."""
    actions, stored = made.action_space, Discrete(len(spaces.actions), start=spaces.first_action)
    if not isinstance(actions, Discrete) or (actions.n, actions.start) != (stored.n, stored.start):
        raise ConfigError("env", f"{label(env)} has changed: its actions were {stored}, and are {shown(actions)}")
    now = observed(env, made.observation_space)
    for name in ("kind", "raw_shape", "first_observation", "brightness"):
        before, found = getattr(spaces, name), getattr(now, name)
        if found != before:
            what = name.replace("raw_", "").replace("_", " ")
            raise ConfigError("env", f"{label(env)} has changed: its observations had the {what} {before}, now {found}")


def observed(env: str, space: Space[Any]) -> Spaces:
    """The kind and shape of observations. Raises `ConfigError` if there can be no network for them."""
    kinds = Spaces(asked=("", "", "", False), kind="vector", shape=(1,), actions=("0",))
    if isinstance(space, Discrete) and space.n <= MAX_NUMBERS and abs(space.start) <= 2**31:
        first = int(space.start)
        return msgspec.structs.replace(kinds, kind="one-hot", shape=(int(space.n),), first_observation=first)
    if isinstance(space, MultiBinary) or (isinstance(space, Box) and space.dtype is not None):
        shape = tuple(map(int, space.shape))
        dtype = np.dtype(space.dtype)
        if _is_image(space, shape):
            planes_first = len(shape) == 3 and _has_planes_first(shape)
            height, width, *planes = (*shape[1:], shape[0]) if planes_first else shape
            high = (float(space.high.max()) or 255.0) if isinstance(space, Box) and dtype == np.uint8 else 1.0
            return msgspec.structs.replace(
                kinds, kind="image", shape=(height, width, *(planes or (1,))), planes_first=planes_first,
                brightness=255.0 / high,
            )  # fmt: skip
        numbers = int(np.prod(shape))
        if dtype.kind in "biuf" and 1 <= numbers <= MAX_NUMBERS:
            return msgspec.structs.replace(kinds, shape=(numbers,))
    advice = "; gymnasium.wrappers.FlattenObservation makes a Box of it" if not isinstance(space, Box) else ""
    raise ConfigError("env", f"{env}: its observations are {shown(space)}; {_ACCEPTED}{advice}")


def _has_planes_first(shape: tuple[int, ...]) -> bool:
    """Whether the planes of an image of three axes are the first: if two axes are as long, they are the third, else
    the shorter of the outer two."""
    first, middle, last = shape
    return middle == last if (middle == last) != (first == middle) else first < last


def _is_image(space: Space[Any], shape: tuple[int, ...]) -> bool:
    """Whether an observation is a picture or a board: two or three axes, of bytes, truth values or shares."""
    if len(shape) not in (2, 3) or not isinstance(space, Box) or min(sorted(shape)[-2:]) < 3:
        return False
    if space.dtype in (np.uint8, np.bool_):
        return True
    return len(shape) == 3 and bool((space.low >= 0).all() and (space.high <= 1).all())


def shown(space: Space[Any]) -> str:
    text = printable(" ".join(str(space).split()))
    return text if len(text) <= 120 else f"{text[:117]}..."


def _kind(given: Any) -> str:
    """What was given, in short."""
    if isinstance(given, tuple | list):
        return f"{len(given)} values"
    if isinstance(given, np.ndarray):
        return f"an array {given.dtype} {list(given.shape)}"
    return type(given).__name__
