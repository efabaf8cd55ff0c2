"""Tells the spaces of an environment: `python -m engine.games.gym.describe`, see `engine.games.gym.spaces`.

It reads the options `ASKED_OF` as a JSON object from its standard input and writes a `Told`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import msgspec
import numpy as np
from gymnasium.spaces import Discrete

from engine.config.fields import ConfigError
from engine.config.user_code import described_error
from engine.errors import UserError
from engine.games.gym.contract import legal_actions, observed, reset_result, shown, step_result
from engine.games.gym.making import make_environment
from engine.games.gym.observations import Observations
from engine.games.gym.spaces import MAX_ACTIONS, Spaces, Told, asked_of, parsed
from engine.games.gym.view import View
from engine.runtime.text import printable

_STEPS = 10_000
"""Random steps whose observations are averaged."""
_SMALLEST_DEVIATION = 1e-6
"""Numbers that deviate less count as constant: they are shifted, and not scaled."""
_FARTHEST = 100.0
"""Numbers of deviations beyond which a number is clipped. The deviations are those of random play, which a trained
agent leaves far behind."""
_CLOSE_S = 5.0
_opened: list[gymnasium.Env[Any, Any]] = []
_NAMES: dict[str, tuple[str, ...]] = {
    "CartPole": ("left", "right"),
    "Acrobot": ("torque -1", "torque 0", "torque +1"),
    "MountainCar": ("left", "none", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "Blackjack": ("stick", "hit"),
}
"""The names of actions that Gymnasium's documentation gives, by the name of an environment."""
_MINATAR = {"n": "none", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
_KEYS = {" ": "space", "\r": "enter", "\t": "tab", 273: "up", 274: "down", 275: "right", 276: "left",
         0x4000004F: "right", 0x40000050: "left", 0x40000051: "down", 0x40000052: "up"}  # fmt: skip
"""Textual's names of keys that environments name by a character, or by a number of pygame 1 or 2."""


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the environment prints is no answer
    question = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    try:
        asked = asked_of(question)
        told = Told(parsed(spaces_of(asked).text()))  # nobody should have to read an answer that is refused
    except ConfigError as error:
        told = Told(failure=error.reason, field=error.field)
        if error.field == "spaces":
            told = Told(failure=f"{question['env']}: its spaces {error.reason}")
    except BaseException as error:  # also `sys.exit` in the environment's code
        told = Told(failure=f"{question['env']}: {described_error(error)}")
    answer.write(msgspec.json.encode(told))
    answer.close()
    closing = threading.Thread(target=_close, daemon=True)
    closing.start()
    closing.join(_CLOSE_S)
    os._exit(0)  # whatever the environment has left running


def _close() -> None:
    for made in _opened:
        with contextlib.suppress(Exception, SystemExit):
            made.close()


def _open(*asked: str, **others: Any) -> gymnasium.Env[Any, Any]:
    made = make_environment(*asked, **others)
    _opened.append(made)
    return made


def spaces_of(asked: tuple[str, str, str, bool]) -> Spaces:
    """The spaces of an environment, which is made and reset. Raises `ConfigError` if it can't be played."""
    env, env_args, env_import, normalize = asked
    made = _open(env, env_args, env_import)
    actions = made.action_space
    if not isinstance(actions, Discrete):
        raise ConfigError("env", f"{env}: its actions are {shown(actions)}; accepted: Discrete")
    if not actions.n <= MAX_ACTIONS:
        raise ConfigError("env", f"{env} has {actions.n:,} actions; accepted: up to {MAX_ACTIONS:,}")
    try:
        given = made.reset(seed=0)
    except (Exception, SystemExit) as error:
        raise ConfigError("env", f"{env}: reset raises {described_error(error)}") from None
    try:
        first, info = reset_result(given)
    except UserError as error:
        raise ConfigError("env", f"{env}: {error}") from None
    spec = made.spec
    spaces = msgspec.structs.replace(
        observed(env, made.observation_space),
        asked=asked,
        actions=_action_names(made, int(actions.n)),
        first_action=int(actions.start),
        masked="action_mask" in info,
        step_limit=None if spec is None else spec.max_episode_steps,
        threshold=None if spec is None else _number(spec.reward_threshold),
        frames_per_s=_frames_per_s(made),
        renders="rgb_array" in (made.metadata.get("render_modes") or ()) and _renders(env, env_args, env_import),
        keys=_keys(made, actions),
        **_done_by_itself(made.unwrapped),
    )
    parsed(spaces.text())
    seen = Observations(spaces, View(spaces.shape, "float32", 1))
    try:
        seen.checked(first)
        legal = legal_actions(info, int(actions.n)) if spaces.masked else np.ones(1)
    except (Exception, SystemExit) as error:
        raise ConfigError("env", f"{env}: after its reset: {described_error(error)}") from None
    try:
        seen.checked(step_result(made.step(actions.start + np.int64(legal.argmax())))[0])
    except (Exception, SystemExit) as error:
        raise ConfigError("env", f"{env}: in its first step: {described_error(error)}") from None
    if normalize:
        if spaces.kind != "vector":
            raise ConfigError("normalize", f"must be off for {env}, whose observations are not vectors")
        count = spaces.shape[0]
        plain = msgspec.structs.replace(spaces, mean=(0.0,) * count, deviation=(1.0,) * count)  # so nothing is rounded
        try:
            mean, deviation = _statistics(made, Observations(plain, View(spaces.shape, "float32", 1)), actions)
        except Exception as error:
            raise ConfigError("env", f"{env}: in random play: {described_error(error)}") from None
        spaces = msgspec.structs.replace(spaces, mean=mean, deviation=deviation, farthest=_FARTHEST)
    return spaces


def _renders(*asked: str) -> bool:
    """Whether an environment that says so can be made with pictures."""
    try:
        _open(*asked, render_mode="rgb_array")
    except ConfigError:
        return False
    return True


def _number(value: Any) -> float | None:
    """What an environment gives as a number, if it is one."""
    with contextlib.suppress(TypeError, ValueError):
        if math.isfinite(number := float(value)):
            return number
    return None


def _action_names(made: gymnasium.Env[Any, Any], count: int) -> tuple[str, ...]:
    """Names of actions, where the environment or Gymnasium's documentation gives them, else numbers."""
    plain = made.unwrapped
    names: Sequence[str] = ()
    with contextlib.suppress(Exception):
        names = [str(name).lower() for name in plain.get_action_meanings()]  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        names = names or [str(name) for name in plain.metadata["action_names"]]
    with contextlib.suppress(Exception):
        names = names or [_MINATAR[plain.game.env.action_map[i]] for i in plain.action_set]  # type: ignore[attr-defined]
    name = "" if made.spec is None else made.spec.name
    names = [printable(each) for each in names or _NAMES.get(name, ())]
    if len(names) != count or len(set(names)) != count or not all(0 < len(each) <= 40 for each in names):
        names = [str(number) for number in range(count)]
    return tuple(names)


def _done_by_itself(game: Any) -> dict[str, Any]:
    """What games of the Arcade Learning Environment and MinAtar do without being asked: skipped frames, repeated
    actions."""
    if hasattr(game, "ale"):
        skipped, sticky = np.mean(game._frameskip), game.ale.getFloat("repeat_action_probability")
        return {"frame_skip": round(float(skipped)), "sticky_actions": float(sticky)}
    return {"sticky_actions": float(getattr(getattr(game, "game", None), "sticky_action_prob", 0.0))}


def _frames_per_s(made: gymnasium.Env[Any, Any]) -> float:
    """Its own steps per second. Those of the Arcade Learning Environment are several frames of 60 per second."""
    if hasattr(made.unwrapped, "ale"):
        return 60 / float(np.mean(made.unwrapped._frameskip))  # type: ignore[attr-defined]
    fps = _number(made.metadata.get("render_fps")) or 0.0
    return min(1000.0, fps) if fps > 0 else 10.0


def _keys(made: gymnasium.Env[Any, Any], actions: Discrete[Any]) -> dict[str, int]:
    """The keys of a person that are pressed alone, or "" for none."""
    keys: dict[str, int] = {}
    with contextlib.suppress(Exception):
        for pressed, action in made.unwrapped.get_keys_to_action().items():  # type: ignore[attr-defined]
            together = [pressed] if isinstance(pressed, int) else list(pressed)
            key = together[0] if together else ""
            if isinstance(key, int) and key < 128:
                key = chr(key)
            name = _KEYS.get(key, str(key).lower())
            if len(together) < 2 and (name in _KEYS.values() or name == "" or (name.isalnum() and len(name) == 1)):
                keys[name] = int(action) - int(actions.start)
    return {key: action for key, action in keys.items() if 0 <= action < actions.n}


def _statistics(
    made: gymnasium.Env[Any, Any], seen: Observations, actions: Discrete[Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each number of an observation while random legal actions are played."""
    actions.seed(0)
    found = []
    observation, info = made.reset(seed=0)
    for _ in range(_STEPS):
        found.append(seen.checked(observation))
        legal = (np.asarray(info["action_mask"]) != 0).astype(np.int8) if "action_mask" in info else None
        observation, _, terminated, truncated, info = made.step(actions.sample(legal))
        if terminated or truncated:
            observation, info = made.reset()
    exact = np.asarray(found, np.float64)  # in float32, rounding would give constants a deviation
    deviation = exact.std(0)
    return tuple(exact.mean(0).tolist()), tuple(np.where(deviation < _SMALLEST_DEVIATION, 1.0, deviation).tolist())


if __name__ == "__main__":
    main()
