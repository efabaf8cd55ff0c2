"""Finds the policy with whose weights a run begins, and checks that it fits. Does not import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config.fields import ConfigError, check
from engine.config.games import GAMES, game_of
from engine.config.run_config import RunConfig, specs_of
from engine.runs import policies
from engine.runs.checkpoints import CheckpointError, find_policy, policy_metadata
from engine.runtime.text import in_words


def options_of_policy(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What an initial policy decides in a new run unless it was `asked` for: the game, and the options that its weights
    fit. Empty if there is no such policy, or it is of another game than the one that was asked for."""
    policy, run_dir = asked.get("initial_policy"), asked.get("run_dir", RunConfig.run_dir)
    if not (isinstance(policy, str) and isinstance(run_dir, str)):
        return {}
    try:
        said = policy_metadata(find_policy(policy, run_dir))
    except CheckpointError:
        return {}  # `with_located_policy` tells why
    game = said["game"]
    if game not in GAMES or asked.get("game", game) != game:
        return {}
    valid: dict[str, Any] = {"game": game}
    for name, value in game_of(game).options_of_policy(said).items():
        with contextlib.suppress(ConfigError):  # a file from elsewhere
            check(specs_of(game)[name], value)
            valid[name] = value
    return valid


def with_located_policy(config: RunConfig) -> RunConfig:
    """The options of a new run with its initial policy as an absolute path, unless it is a policy of the package: the
    run's processes have another working directory, and the name of a run may come to mean another policy.

    Raises `ConfigError` if there is no such policy, or if it doesn't fit.
    """
    if config.initial_policy is None:
        return config
    path = fitting_policy(config)
    return config if path == policies.path_of(config.initial_policy) else replace(config, initial_policy=str(path))


def fitting_policy(config: RunConfig) -> Path:
    """The file of a run's initial policy. Raises `ConfigError` if it is gone, or its weights don't fit the run."""
    path = _find(config.initial_policy or "", config)
    metadata = policy_metadata(path)
    for field, wanted in _must_be(config):
        found = metadata.get(field)
        some = field == "actions" and isinstance(found, list) and found and all(each in wanted for each in found)
        if found != wanted and not some:
            accepted = in_words(wanted) + ", or some of these" * (field == "actions")
            raise ConfigError(
                "initial_policy", f"must have {field} {accepted}, as this run, got {in_words(found)} in {path.name}"
            )
    return path


def _find(policy: str, config: RunConfig) -> Path:
    try:
        return find_policy(policy, config.run_dir)
    except CheckpointError as error:
        raise ConfigError("initial_policy", f"must be a policy; {error}") from None


def _must_be(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Fields of the metadata, and what they must be."""
    yield "game", config.game
    yield "network", config.network_name
    yield "stack", config.spec.stack
    yield from config.game_info.policy_must_have(config).items()
