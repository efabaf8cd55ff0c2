"""Tells the spaces of an environment: `python -m engine.games.gym.describe`, see `engine.games.gym.spaces`.

It reads the options `ASKED_OF` as a JSON object from its standard input and writes a `Told`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.user_code import described_error
from engine.errors import UserError
from engine.games.gym.environment import (
    foreign,
    legal_actions,
    make_environment,
    named_action,
    observed,
    reset_result,
    shown,
    sizes_of,
    step_result,
)
from engine.games.gym.observations import Observations
from engine.games.gym.options import View
from engine.games.gym.spaces import MAX_ACTIONS, MEASURED_S, SUCCESS, Spaces, Speed, Told, asked_of, parsed
from engine.runtime.processes import killed_with_parent, take_children
from engine.runtime.stored_arrays import global_random_state, seed_global_random
from engine.runtime.text import printable
from engine.runtime.threads import CLOSE_S, GraceTime, call_within

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
}
"""The names of actions that Gymnasium's documentation gives, by the name of an environment."""
_MINATAR = {"n": "none", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
_KEYS = {" ": "space", "\r": "enter", "\t": "tab", 273: "up", 274: "down", 275: "right", 276: "left",
         0x4000004F: "right", 0x40000050: "left", 0x40000051: "down", 0x40000052: "up"}  # fmt: skip
"""Textual's names of keys that environments name by a character, or by a number of pygame 1 or 2."""


def main() -> None:
    killed_with_parent()
    take_children(marked=True)
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the environment prints is no answer
    question = json.load(sys.stdin)

    told = Told()

    def hangs(call: str) -> None:
        said = f"{question['env']}: {call}: no answer for {question['limit_s']:g} s (--step-timeout)"
        answer.write(msgspec.json.encode(told if told.spaces else Told(failure=said)))  # while it is measured
        answer.close()
        os._exit(0)

    calls, forks = _Calls(question["limit_s"], hangs), list[None]()
    os.register_at_fork(before=lambda: forks.append(None))
    warnings.simplefilter("ignore")
    seed_global_random(0)
    try:
        asked = asked_of(question)
        told = Told(parsed(spaces_of(asked, calls).text()))  # nobody should have to read an answer that is refused
        told.speed = _speed(asked, calls, forks)
    except ConfigError as error:
        told = Told(failure=error.reason, field=error.field)
        if error.field == "spaces":
            told = Told(failure=f"{question['env']}: its spaces {error.reason}")
    except BaseException as error:  # also `sys.exit` in the environment's code
        told = Told(failure=f"{question['env']}: {described_error(error)}")
    answer.write(msgspec.json.encode(told))
    answer.close()
    call_within(CLOSE_S, _close)
    os._exit(0)  # whatever the environment has left running, which `ask` ends


class _Calls:
    """Around each call of the environment: one that takes longer than `limit_s` seconds `hangs`."""

    def __init__(self, limit_s: float, hangs: Callable[[str], None]) -> None:
        self._limit_s, self._hangs = limit_s, hangs
        self._under_way = dict[int, tuple[str, float]]()  # by thread
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        grace = GraceTime(self._limit_s)
        while True:
            time.sleep(min(1.0, self._limit_s / 8))
            now, spared = grace.look()
            for call, since in [*self._under_way.values()]:
                if now - since > self._limit_s and not spared:
                    self._hangs(call)

    @contextlib.contextmanager
    def __call__(self, call: str) -> Iterator[None]:
        self._under_way[threading.get_ident()] = call, time.monotonic()
        try:
            yield
        finally:
            del self._under_way[threading.get_ident()]


def _close() -> None:
    for made in _opened:
        with contextlib.suppress(Exception, SystemExit):
            made.close()


def _open(calls: _Calls, *asked: str, **others: Any) -> gymnasium.Env[Any, Any]:
    with calls("make"):
        made = make_environment(*asked, **others)
    _opened.append(made)
    return made


def spaces_of(asked: tuple[str, str, str, bool], calls: _Calls) -> Spaces:
    """The spaces of an environment, which is made and reset. Raises `ConfigError` if it can't be played."""
    env, env_args, env_import, _ = asked
    made = _open(calls, env, env_args, env_import)
    actions = made.action_space
    if (found := sizes_of(actions)) is None:
        accepted = "Discrete, MultiDiscrete, MultiBinary"
        raise ConfigError("env", f"{env}: its actions are {shown(actions)}{foreign(actions)}; accepted: {accepted}")
    sizes, firsts = found
    count = math.prod(sizes)
    if not count <= MAX_ACTIONS:
        what = "actions" if isinstance(actions, Discrete) else "combinations of actions"
        raise ConfigError("env", f"{env} has {count:,} {what}; accepted: up to {MAX_ACTIONS:,}")
    if max(map(abs, firsts)) > 2**31:
        raise ConfigError("env", f"{env}: its actions are {shown(actions)}; accepted: a start within 2^31")
    try:
        with calls("reset"):
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
        actions=_action_names(made, sizes, firsts),
        **(
            {"first_action": firsts[0]}
            if isinstance(actions, Discrete)
            else {"action_sizes": sizes, "action_firsts": firsts}
        ),
        masked="action_mask" in info,
        step_limit=None if spec is None else spec.max_episode_steps,
        threshold=None if spec is None else _number(spec.reward_threshold),
        frames_per_s=_frames_per_s(made),
        renders="rgb_array" in (made.metadata.get("render_modes") or ()) and _renders(calls, env, env_args, env_import),
        keys=_keys(made, actions) if isinstance(actions, Discrete) else {},
        **_done_by_itself(made.unwrapped),
    )
    parsed(spaces.text())
    seen = Observations(spaces, View(spaces.shape, "float32", 1))
    try:
        seen.checked(first)
        legal = legal_actions(info, count) if spaces.masked else np.ones(1)
    except (Exception, SystemExit) as error:
        raise ConfigError("env", f"{env}: after its reset: {described_error(error)}") from None
    try:
        with calls("step"):
            after = made.step(named_action(int(legal.argmax()), actions, spaces))
        observation, *_, told = step_result(after)
        seen.checked(observation)
    except (Exception, SystemExit) as error:
        raise ConfigError("env", f"{env}: in its first step: {described_error(error)}") from None
    return msgspec.structs.replace(spaces, succeeds=any(name in told or name in info for name in SUCCESS))


def _clock() -> NDArray[np.float64]:
    """Seconds without those in which this thread has waited for a core, and seconds that this process has computed."""
    waited_ns = 0
    with contextlib.suppress(OSError, ValueError):  # only Linux tells it
        waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return np.array([time.perf_counter() - waited_ns / 1e9, time.process_time()])


def _speed(asked: tuple[str, str, str, bool], calls: _Calls, forks: list[None]) -> Speed:
    """Play a reset and 32 steps, or as many as there is time for. An environment that waits is also played in two
    threads at the same time, which must see the same. One that forks is not: threads that fork may hang (what one has
    forked keeps open the pipe on which another's `subprocess` waits for its program's start)."""
    env, env_args, env_import, _ = asked

    def played(made: gymnasium.Env[Any, Any], most: int = 32) -> list[Any]:
        """What is seen."""
        seen, over, until = list[Any](), True, time.perf_counter() + MEASURED_S
        actions = copy.deepcopy(made.action_space)  # which a class may share
        actions.seed(0)
        while not seen or (len(seen) < most and time.perf_counter() < until):
            if over:
                with calls("reset"):
                    _, info = reset_result(made.reset(seed=len(seen)))
            action = actions.sample(np.asarray(info["action_mask"], np.int8) if "action_mask" in info else None)
            with calls("step"):
                observation, reward, terminated, truncated, info = step_result(made.step(action))
            over = terminated or truncated
            seen.append((repr(observation), reward, over))
        return seen

    try:
        before, made = global_random_state(), _open(calls, env, env_args, env_import)  # its module was imported before
        began = _clock()
        alone = played(made)
        taken_s, computed_s = (_clock() - began).tolist()
    except (Exception, SystemExit):  # in training it is made anew
        return Speed()
    after, waits, threads = global_random_state(), computed_s < taken_s / 2, False
    draws = not all(np.array_equal(array, after[name]) for name, array in before.items())
    if waits and not draws and not forks:
        with contextlib.suppress(Exception, SystemExit), ThreadPoolExecutor(2) as pool:
            both = [pool.submit(lambda: played(_open(calls, env, env_args, env_import), len(alone))) for _ in range(2)]
            threads = all(each.result() == alone[: len(each.result())] for each in both) and not forks
    return Speed(step_s=max(0.0, taken_s) / len(alone), waits=waits, threads=threads, draws=draws)


def _renders(calls: _Calls, *asked: str) -> bool:
    """Return whether an environment that says so can be made with pictures."""
    try:
        _open(calls, *asked, render_mode="rgb_array")
    except ConfigError:
        return False
    return True


def _number(value: Any) -> float | None:
    """Return what an environment gives as a number, if it is one."""
    with contextlib.suppress(TypeError, ValueError):
        if math.isfinite(number := float(value)):
            return number
    return None


def _action_names(made: gymnasium.Env[Any, Any], sizes: tuple[int, ...], firsts: tuple[int, ...]) -> tuple[str, ...]:
    """Names of actions, where the environment or Gymnasium's documentation gives them, else numbers, of combinations
    each."""
    plain, count = made.unwrapped, math.prod(sizes)
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
        if len(sizes) > 1 and 2 * len(sizes) <= 40:
            names = [" ".join(map(str, np.unravel_index(number, sizes) + np.array(firsts))) for number in range(count)]
            names = names if max(map(len, names)) <= 40 else [str(number) for number in range(count)]
    return tuple(names)


def _done_by_itself(game: Any) -> dict[str, Any]:
    """Return what games of the Arcade Learning Environment and MinAtar do without being asked: skipped frames, repeated
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


if __name__ == "__main__":
    main()
