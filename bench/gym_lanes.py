"""Environment steps per second of lanes of Gymnasium environments, against Gymnasium's own vector environments.

    python -m bench.gym_lanes [--seconds S] [--rounds R] [--lanes N]

`sync` steps all environments in a loop, as our lanes do; `async` gives each a process. All play the same random
actions and take turns; the table has medians. Our lanes also check every observation and seed every episode, which the
others don't; MinAtar's episodes of random actions are short, and seeding one takes longer than ten steps.
"""

from __future__ import annotations

import argparse
import itertools
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
from engine.envs.factory import make_lanes

ENVIRONMENTS = ("CartPole-v1", "FrozenLake-v1", "MinAtar/Breakout-v1")
_ACTIONS = 512
"""Random actions per lane, which repeat."""


def _step(step: Callable[[NDArray[np.int64]], Any], actions: Iterator[NDArray[np.int64]]) -> None:
    step(next(actions))


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of lanes of Gymnasium environments.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--lanes", type=int, default=16)
    arguments = parser.parse_args()
    table = Table("environment", "ours", "sync", "async", "ours / sync", "ours / async")
    for env in ENVIRONMENTS:
        lanes = make_lanes(make_config({"game": f"gym:{env}"}), arguments.lanes, threads=1, seed=0)
        vectors = {
            mode: gymnasium.make_vec(env, num_envs=arguments.lanes, vectorization_mode=mode)
            for mode in ("sync", "async")
        }
        lanes.reset()
        for vector in vectors.values():
            vector.reset(seed=0)
        actions = itertools.cycle(np.random.default_rng(0).integers(0, lanes.spec.actions, (_ACTIONS, arguments.lanes)))
        steps = {"ours": lanes.step, **{mode: vector.step for mode, vector in vectors.items()}}
        contestants = [Contestant(name, partial(_step, step, actions)) for name, step in steps.items()]
        for _ in range(arguments.rounds):
            for contestant in contestants:
                contestant.turn(arguments.seconds)
        ours, sync, asynchronous = (each.median * arguments.lanes for each in contestants)
        numbers = (f"{each:,.0f}" for each in (ours, sync, asynchronous))
        table.add_row(env, *numbers, f"{ours / sync:.2f}", f"{ours / asynchronous:.1f}")
        lanes.close()
        for vector in vectors.values():
            vector.close()
    Console(width=100, highlight=False).print(table)


if __name__ == "__main__":
    main()
