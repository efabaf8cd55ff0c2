"""The tasks of a policy: the stages or boards that it plays. Imports nothing heavy: the command line uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.config.games import game_of
from engine.config.reading import make_config
from engine.config.run_config import RunConfig


def tasks_of(metadata: Mapping[str, Any], task: str | None = None) -> tuple[str, ...]:
    """The tasks of the policy with this metadata: several if it learned several stages, or was distilled from policies
    for several boards. `task` replaces its own."""
    game = game_of(metadata["game"])
    return game.tasks_of(task or metadata[game.tasks])


def config_of_policy(metadata: Mapping[str, Any]) -> RunConfig:
    """Options of a run that plays the task of the policy with this metadata, which has one. Raises `ConfigError` if a
    run can't have it."""
    game = game_of(metadata["game"])
    known = {name: metadata[name] for name in game.policy_options if name in metadata}  # unset numbers may be left out
    if "actions" in known:
        known["actions"] = ",".join(known["actions"])
    return make_config({"game": game.name, **known})


def rounded_up(episodes: int, tasks: Sequence[str]) -> int:
    """At least so many episodes, and equally many of each task."""
    return math.ceil(episodes / len(tasks)) * len(tasks)
