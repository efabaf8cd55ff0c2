"""Defaults of a run's options where a game or runner has others than `RunConfig` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config.run_config import RunConfig, belongs
from engine.config.runners import RUNNERS

_BOARD_DEFAULTS: dict[str, Any] = {
    "n_step": 3,
    "replay_ratio": 1.0,
    "batch_size": 64,
    "learning_rate_schedule": "decay",
    "tau": 0.005,
    "prioritized_replay": False,
    "eval_every": 400_000,
}
_GAME_DEFAULTS: dict[str, dict[str, Any]] = {
    "mario": {
        "observation": "50x60-red",  # table
        "advantage_learning": 0.5,  # table
        "final_advantage_learning": 0.95,  # table
    },
    "snake": {
        "board": "12x12",
        "reward": "fruits",
        "paths": True,
        "late_starts": 0.3,
        "death_penalty": 3.0,  # otherwise a fruit now is worth the risk of all later ones
        "step_penalty": 0.01,  # otherwise long snakes go in circles
        **_BOARD_DEFAULTS,
        "parallel_envs": 64,
        "buffer_size": 400_000,
        "gamma": 0.98,
        "final_gamma": 0.99,  # before, the agent would rather eat fast than fill the board
        "learning_rate": 5e-4,
        "policy_tau": 0.0007,
        "double_q": True,
        "epsilon": 0.1,  # a long snake does not survive many wrong moves
        "epsilon_steps": 20_000,
        "burnin": 3_000,
        "eval_episodes": 50,
    },
    "tetris": {
        "board": "10x20",
        "reward": "cells",  # squares of lines, as in `lines`, make the agent stack too high
        "max_pieces": 10_000,  # four thousand lines
        "afterstates": True,
        **_BOARD_DEFAULTS,
        "gamma": 0.97,
        "learning_rate": 1e-3,
        "policy_tau": 0.0005,
        "epsilon": 0.005,  # a wrong placement costs several lines
        "epsilon_steps": 5_000,
        "burnin": 2_000,
        "eval_episodes": 30,
    },
}
"""Where a game's defaults differ from those of `RunConfig`, most of which are Mario's."""


def defaults(game: str, runner: str) -> dict[str, Any]:
    """Defaults of a game and runner that differ from those of `RunConfig`.

    Two processes together play as many lanes, and learn from as many transitions, as one process does.
    """
    values = dict(_GAME_DEFAULTS.get(game, {}))
    info = RUNNERS[runner]
    if info.count is not None:
        values["parallel_envs"] = values.get("parallel_envs", RunConfig.parallel_envs) // 2
    if info.averages_gradients:
        values["batch_size"] = values.get("batch_size", RunConfig.batch_size) // 2
    return values


def carried_over(kept: Mapping[str, Any], game: str, runner: str) -> dict[str, Any]:
    """Options of an earlier run that still hold under `game` and `runner`.

    With another runner the number of lanes per process is not kept: it depends on how many processes share them. Nor is
    another option whose default differs between the two runners, if it has the earlier one's.
    """
    before = kept["runner"]
    if runner == before:
        return dict(kept)
    earlier, now = (vars(RunConfig) | defaults(game, each) for each in (before, runner))
    follows = {"parallel_envs"} | {name for name in kept if kept[name] == earlier[name] != now[name]}
    return {name: kept[name] for name in kept if name not in follows and belongs(name, game, runner)}
