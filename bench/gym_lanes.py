"""Environment steps per second of lanes of Gymnasium environments, against Gymnasium's own vector environments.

    python -m bench.gym_lanes [--seconds S] [--rounds R] [--lanes N] [--env ID ...]

Ours step in this thread, in a thread for each lane, or in as many worker processes as there are cores (`--env-workers
none`, `threads` and N); `auto` is what a run chooses by itself. `sync` steps all environments in a loop; `async` gives
each a process. All play the same random actions and take turns; the table has medians. Our lanes also check every
observation and seed every episode, which the others don't; MinAtar's episodes of random actions are short, and seeding
one takes longer than ten steps. The sleeping and the computing environment take 5 ms for a step.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.turns import Contestant
from engine.config.reading import make_config
from engine.games.gym.lanes import GymLanes
from engine.games.gym.options import GymOptions
from engine.games.gym.workers import HERE, Way, chosen_way
from engine.runtime.threads import available_cores

ENVIRONMENTS = (
    "CartPole-v1", "FrozenLake-v1", "MinAtar/Breakout-v1", "ALE/Pong-v5", "bench.gym_lanes:Sleeping-v0",
    "bench.gym_lanes:Computing-v0",
)  # fmt: skip
_ACTIONS = 512
"""Random actions per lane, which repeat."""
_STEP_S = 0.005


class Sleeping(gymnasium.Env[Any, Any]):
    """Waits for each step."""

    metadata = {"render_modes": []}
    observation_space = gymnasium.spaces.Box(0, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**options)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.take(_STEP_S)
        return np.zeros(4, np.float32), 0.0, False, False, {}

    def take(self, seconds: float) -> None:
        time.sleep(seconds)


class Computing(Sleeping):
    """Computes in each step, in Python."""

    def take(self, seconds: float) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass


for _kind in (Sleeping, Computing):
    gymnasium.register(f"{_kind.__name__}-v0", entry_point=f"bench.gym_lanes:{_kind.__name__}", max_episode_steps=1000)


def _step(step: Callable[[NDArray[np.int64]], Any], actions: Iterator[NDArray[np.int64]]) -> None:
    step(next(actions))


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of lanes of Gymnasium environments.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--env", nargs="+", default=ENVIRONMENTS)
    arguments = parser.parse_args()
    lanes, cores = arguments.lanes, available_cores()
    ways = {"none": HERE, "threads": Way("threads", lanes), str(cores): Way("processes", cores)}
    table = Table("environment", *ways, "auto", "sync", "async")
    for env in arguments.env:
        config = make_config({"game": f"gym:{env}"})
        options = GymOptions.of(config)
        ours = {name: GymLanes(options, config.spec, lanes, seed=0, way=way) for name, way in ways.items()}
        vectors = {mode: gymnasium.make_vec(env, num_envs=lanes, vectorization_mode=mode) for mode in ("sync", "async")}
        for each in ours.values():
            each.reset()
        for vector in vectors.values():
            vector.reset(seed=0)
        actions = itertools.cycle(np.random.default_rng(0).integers(0, config.spec.actions, (_ACTIONS, lanes)))
        steps = {**{name: each.step for name, each in ours.items()}, **{m: each.step for m, each in vectors.items()}}
        contestants = [Contestant(name, partial(_step, step, actions)) for name, step in steps.items()]
        for _ in range(arguments.rounds):
            for contestant in contestants:
                contestant.turn(arguments.seconds)
        numbers = [f"{each.median * lanes:,.0f}" for each in contestants]
        table.add_row(env, *numbers[:-2], str(chosen_way(options, lanes, cores)), *numbers[-2:])
        closing: list[Any] = [*ours.values(), *vectors.values()]
        for made in closing:
            made.close()
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
