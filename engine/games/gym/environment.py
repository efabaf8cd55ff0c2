"""Makes Gymnasium environments from options, which imports the code that they name, and says what is wrong with one.

What an environment changes in PyTorch for the whole process, and with which the agent could not learn, or only slowly,
is undone.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import logging
import math
import sys
import threading
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import gymnasium
import msgspec
import numpy as np
from gymnasium import error
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from engine.config.features import feature, has_feature
from engine.config.fields import ConfigError
from engine.config.user_code import described_error, import_module, import_named, in_a_line, with_extra
from engine.errors import UserError
from engine.games.gym.spaces import MAX_NUMBERS, MAX_PIXELS, SMALL, Part, Spaces, label, together
from engine.runtime.processes import start_keeper
from engine.runtime.text import did_you_mean, place_of, printable

_ACCEPTED = (
    f"accepted: Box of 1 to {MAX_NUMBERS:,} numbers, images (Box of two axes, or three with the planes first or last), "
    "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
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
    if not isinstance(reward, _NUMBERS):
        if reward is None or isinstance(reward, str) or np.size(reward) != 1:
            raise UserError(f"a reward must be a number, got {_kind(reward)}")
        reward = np.asarray(reward).item()
    if terminated is None or truncated is None:
        raise UserError("terminated and truncated must be True or False, got None")
    return observation, float(reward), bool(terminated), bool(truncated), _info(info)


def _info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise UserError(f"info must be a dict, got {type(info).__name__}")
    return info


def legal_actions(info: dict[str, Any], count: int) -> NDArray[np.bool_]:
    """The mask, bool [count]. Raises `UserError` if it has another shape or leaves no action."""
    given = info.get("action_mask", ())
    if isinstance(given, tuple) and given:  # of MultiDiscrete, one for each number
        given = functools.reduce(np.multiply.outer, given).reshape(-1)
    mask = np.asarray(given) != 0
    if mask.shape != (count,) or not mask.any():
        got = "only zeros" if mask.shape == (count,) else f"the shape {mask.shape}" if "action_mask" in info else "none"
        raise UserError(f"an action_mask must have {count} values, one of them not 0, got {got}")
    return mask


def check_unchanged(env: str, made: gymnasium.Env[Any, Any], spaces: Spaces) -> None:
    """Raise `ConfigError` if an environment's spaces differ from those that a run or a policy has stored: the same
    number could mean another action."""
    actions, firsts = made.action_space, spaces.action_firsts or (spaces.first_action,)
    if sizes_of(actions) != (spaces.action_sizes or (len(spaces.actions),), firsts):
        sizes = spaces.action_sizes
        stored = f"combinations of {sizes}" if sizes else str(Discrete(len(spaces.actions), start=firsts[0]))
        raise ConfigError("env", f"{label(env)} has changed: its actions were {stored}, and are {shown(actions)}")
    now = observed(env, made.observation_space)
    befores, founds = spaces.parts or (spaces,), now.parts or (now,)
    if [part.path for part in befores] != [part.path for part in founds]:
        raise ConfigError("env", f"{label(env)} has changed: its observations had other parts")
    for part, found in zip(befores, founds, strict=True):
        if part.kind == "vector" and found.kind == "image" and math.prod(found.shape) == part.shape[0]:
            continue  # a run of an earlier version
        for name in ("kind", "raw_shape", "first_observation", "sizes", "firsts", "brightness", "darkest"):
            if getattr(part, name) != getattr(found, name):
                what = name.replace("raw_", "").replace("_", " ")
                said = f"its observations had the {what} {getattr(part, name)}, now {getattr(found, name)}"
                raise ConfigError("env", f"{label(env)} has changed: {said}")


def sizes_of(actions: Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """How many values each number of an action has, and the first of them; None for other spaces."""
    if isinstance(actions, Discrete):
        return (int(actions.n),), (int(actions.start),)
    if isinstance(actions, MultiDiscrete):
        return tuple(actions.nvec.reshape(-1).tolist()), tuple(actions.start.reshape(-1).tolist())
    if isinstance(actions, MultiBinary):
        count = math.prod(actions.shape)
        return (2,) * count, (0,) * count
    return None


def named_action(action: int, space: Space[Any], spaces: Spaces) -> Any:
    """An action as the environment names it, of the type of its own samples."""
    if not spaces.action_sizes:
        return np.int64(action + spaces.first_action)
    numbers = np.unravel_index(action, spaces.action_sizes) + np.array(spaces.action_firsts)
    return numbers.astype(space.dtype).reshape(space.shape)


def observed(env: str, space: Space[Any]) -> Spaces:
    """The kind and shape of observations. Raises `ConfigError` if there can be no network for them."""
    found = tuple(_parts(env, space, ()))
    kind, shape, numbers = together(found)
    others: dict[str, Any] = {"asked": ("", "", "", False), "actions": ("0",), "resizes_all": kind == "image"}
    if found and not found[0].path:
        return Spaces(**msgspec.structs.asdict(found[0]), **others)
    if not 1 <= (numbers or shape[0]) <= MAX_NUMBERS or math.prod(shape) > MAX_PIXELS:
        raise ConfigError("env", f"{env}: its observations have {max(numbers, shape[0]):,} numbers; {_ACCEPTED}")
    return Spaces(kind=kind, shape=shape, numbers=numbers, parts=found, **others)  # type: ignore[arg-type]


def _parts(env: str, space: Space[Any], path: tuple[str | int, ...]) -> Iterator[Part]:
    if isinstance(space, Dict | Tuple):
        for key, part in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            yield from _parts(env, part, (*path, key))
        return
    if isinstance(space, Discrete) and space.n <= MAX_NUMBERS and abs(space.start) <= 2**31:
        yield Part(path=path, kind="one-hot", shape=(int(space.n),), first_observation=int(space.start))
        return
    if isinstance(space, MultiDiscrete) and 1 <= space.nvec.sum() <= MAX_NUMBERS and abs(space.start).max() <= 2**31:
        sizes, firsts = sizes_of(space) or ((), ())
        yield Part(path=path, kind="one-hot", shape=(sum(sizes),), sizes=sizes, firsts=firsts)
        return
    if isinstance(space, MultiBinary) or (isinstance(space, Box) and space.dtype is not None):
        shape = tuple(map(int, space.shape))
        dtype = np.dtype(space.dtype)
        if isinstance(space, Box) and _is_image(space, shape):
            planes_first = len(shape) == 3 and _has_planes_first(shape)
            height, width, *planes = (*shape[1:], shape[0]) if planes_first else shape
            if max(shape) > MAX_NUMBERS or math.prod(shape) > MAX_PIXELS:
                accepted = f"up to {MAX_PIXELS:,} numbers, and {MAX_NUMBERS:,} a side"
                raise ConfigError("env", f"{env}: its images have the shape {shape}; accepted: {accepted}")
            low, high = (0.0, 1.0) if dtype == np.bool_ else (min(0.0, float(space.low.min())), float(space.high.max()))
            high = (high or 255.0) if dtype == np.uint8 else max(1.0, high)
            yield Part(
                path=path, kind="image", shape=(height, width, *(planes or (1,))), planes_first=planes_first,
                brightness=255.0 / (high - low), darkest=low, floats=dtype.kind == "f",
            )  # fmt: skip
            return
        numbers = int(np.prod(shape))
        if dtype.kind in "biuf" and 1 <= numbers <= MAX_NUMBERS:
            yield Part(path=path, kind="vector", shape=(numbers,))
            return
    where = f"'s {'.'.join(map(str, path))}" if path else "s"
    which = f"{env}: its observation{where} {'is' if path else 'are'} {shown(space)}"
    advice = "; gymnasium.wrappers.FilterObservation leaves parts out" if path else ""
    raise ConfigError("env", f"{which}{foreign(space)}; {_ACCEPTED}{advice}")


def foreign(space: object) -> str:
    """Return whose space it is, if it is not Gymnasium's."""
    package = type(space).__module__.partition(".")[0]
    return "" if isinstance(space, Space) else f", of the package {package} instead of gymnasium.spaces"


def _has_planes_first(shape: tuple[int, ...]) -> bool:
    """Return whether the planes of an image of three axes are the first: if two axes are as long, they are the third,
    else the shorter of the outer two."""
    first, middle, last = shape
    return middle == last if (middle == last) != (first == middle) else first < last


def _is_image(space: Box, shape: tuple[int, ...]) -> bool:
    """Return whether an observation is a picture or a board: two or three axes, of bytes, truth values or shares; large
    ones also of numbers up to 255, or from -1 to 1."""
    if len(shape) not in (2, 3) or min(sorted(shape)[-2:]) < 3:
        return False
    if space.dtype in (np.uint8, np.bool_):
        return True
    low, high = float(space.low.min()), float(space.high.max())
    is_large = min(sorted(shape)[-2:]) >= SMALL
    return (low >= 0 and (high <= 1 or (is_large and high <= 255))) or (is_large and (low, high) == (-1, 1))


def shown(space: Space[Any]) -> str:
    text = printable(" ".join(str(space).split()))
    return text if len(text) <= 120 else f"{text[:117]}..."


def _kind(given: Any) -> str:
    """Return what was given, in short."""
    if isinstance(given, tuple | list):
        return f"{len(given)} values"
    if isinstance(given, np.ndarray):
        return f"an array {given.dtype} {list(given.shape)}"
    return type(given).__name__


_REGISTERING = {"MinAtar": "minatar.gym:register_envs", "ALE": "ale_py:"}
"""What registers the ids of known namespaces; without a function, the import does."""
_OURS, _ENVIRONMENTS = "mario_tui/", "gymnasium environments"
_MOST_IDS = 10
"""Most ids of a module that an error lists."""
_importing = threading.Lock()
"""Lanes may be made in threads, and a file's module is known before all of it has run."""


def make_environment(env: str, env_args: str, env_import: str, **others: Any) -> gymnasium.Env[Any, Any]:
    """An environment as Gymnasium makes it, without its own checks, which look at two steps only. Raises `ConfigError`
    that says which option is wrong."""
    start_keeper()
    module, _, id = env.rpartition(":")
    namespace = id.rpartition("/")[0]
    with _importing:
        if env_import != "none":
            _register(env_import, "env_import")
        elif namespace in _REGISTERING and not module:
            _register(_REGISTERING[namespace], "env")
        known = {*gymnasium.registry}
        if module:
            import_module(module, "env")
    arguments = {**_arguments(env_args), **others}
    try:
        return gymnasium.make(id, disable_env_checker=True, **arguments)
    except error.DependencyNotInstalled as failure:
        raise ConfigError("env", f"{id}: {with_extra(str(failure))}") from None
    except (error.NameNotFound, error.VersionNotFound, error.DeprecatedEnv):
        raise ConfigError("env", f"Environment {id} doesn't exist{_meant(id, module, known)}") from None
    except error.Error as failure:  # with Gymnasium's advice
        raise ConfigError("env", in_a_line(str(failure))) from None
    except (Exception, SystemExit) as failure:
        raised = (isinstance(failure, TypeError) and failure.__cause__) or failure  # which Gymnasium raises again
        if isinstance(raised, TypeError) and not place_of(raised) and _arguments(env_args):
            raise ConfigError("env_args", f"{id} does not take them: {in_a_line(str(raised))}") from None
        raise ConfigError("env", f"{id} can't be made: {described_error(raised)}") from None


def _meant(id: str, module: str, known: Collection[str]) -> str:
    """Return what may have been meant by an id that does not exist. `known`: those before the import of its
    `module`."""
    others = [*gymnasium.registry]
    if has_feature(_ENVIRONMENTS):
        feature(_ENVIRONMENTS, _OURS)
    ours = [name.removeprefix(_OURS) for name in gymnasium.registry if name.startswith(_OURS)]
    if likely := difflib.get_close_matches(id, ours, n=1, cutoff=0.8):
        return f"; did you mean engine.games.gymnasium_api:{_OURS}{likely[0]}?"
    if not module:
        return did_you_mean(id, others)
    registered = sorted({*others} - {*known}) or ["none"]
    return f"; {module} registers: {', '.join(registered[:_MOST_IDS])}" + ", …" * (len(registered) > _MOST_IDS)


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError("env_args", f"must be a JSON object, got {text!r} ({error})") from None
    if not isinstance(given, dict):
        raise ConfigError("env_args", f"must be a JSON object, got {text!r}")
    return given


@cache  # what is registered twice warns
def _register(named: str, field: str) -> None:
    module, _, function = named.rpartition(":")
    if not function:
        import_module(module, field)
        return
    registers = import_named(named, field)
    try:
        registers()
    except (Exception, SystemExit) as failure:
        raise ConfigError(field, f"{named} fails: {described_error(failure)}") from None


_LOG = logging.getLogger(__name__)
_SETTINGS = {
    "set_grad_enabled": "is_grad_enabled",
    "set_default_dtype": "get_default_dtype",
    "set_num_threads": "get_num_threads",
    "use_deterministic_algorithms": "are_deterministic_algorithms_enabled",
}
"""Functions of PyTorch that set them, and those that tell their values."""
_told = set[str]()


@contextlib.contextmanager
def torch_settings_kept(name: str) -> Iterator[None]:
    """Around calls of the environment `name`: what they change is undone, and told once."""
    torch = sys.modules.get("torch")
    before = [getattr(torch, value_of)() for value_of in _SETTINGS.values()] if torch else []
    try:
        yield
    finally:
        for (setter, value_of), value in zip(_SETTINGS.items(), before, strict=False):  # none without PyTorch
            if (now := getattr(torch, value_of)()) != value:
                getattr(torch, setter)(value)
                said = f"{name} calls torch.{setter}({now}): undone, because it would hold for the agent too"
                if said not in _told:
                    _told.add(said)
                    _LOG.warning(said)
