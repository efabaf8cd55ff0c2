"""Defaults of a run's options where a game or runner has others than `RunConfig` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config.games import game_of
from engine.config.run_config import RunConfig, belongs, specs_of
from engine.config.runners import RUNNERS


def defaults(game: str, runner: str) -> dict[str, Any]:
    """Defaults of options of all games that differ from those of `RunConfig` under a game and runner.

    Two processes together play as many lanes, and learn from as many transitions, as one process does.
    """
    values = dict(game_of(game).defaults())
    info = RUNNERS[runner]
    if info.count is not None:
        values["parallel_envs"] = values.get("parallel_envs", RunConfig.parallel_envs) // 2
    if info.averages_gradients:
        values["batch_size"] = values.get("batch_size", RunConfig.batch_size) // 2
    return values


def usual(game: str, runner: str) -> dict[str, Any]:
    """Every option of a game with its default under a runner."""
    return {name: spec.default for name, spec in specs_of(game).items()} | defaults(game, runner)


def carried_over(kept: Mapping[str, Any], game: str, runner: str) -> dict[str, Any]:
    """Options of an earlier run that still hold under `game` and `runner`.

    With another runner the number of lanes per process is not kept: it depends on how many processes share them. Nor is
    another option whose default differs between the two runners, if it has the earlier one's.
    """
    before = kept["runner"]
    if runner == before:
        return dict(kept)
    earlier, now = (usual(game, each) for each in (before, runner))
    follows = {"parallel_envs"} | {name for name in kept if name in now and kept[name] == earlier[name] != now[name]}
    return {name: kept[name] for name in kept if name not in follows and belongs(name, game, runner)}
