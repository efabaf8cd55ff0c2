"""Finds the policy with whose weights a run begins, and checks that it fits. Does not import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.config.fields import GAMES, check
from engine.config.joypad import action_names
from engine.config.observation import observation_layout
from engine.config.run_config import OF_INITIAL_POLICY, ConfigError, RunConfig
from engine.runs import policies
from engine.runs.checkpoints import CheckpointError, find_policy, policy_metadata


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
    decided = {"game": game, **(_of_mario(said) if game == "mario" else _of_board(said))}
    valid: dict[str, Any] = {}
    for name, value in decided.items():
        with contextlib.suppress(ConfigError):  # a file from elsewhere
            check(RunConfig.__dataclass_fields__[name], value)
            valid[name] = value
    return valid


def _of_mario(said: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: said.get(name) for name in OF_INITIAL_POLICY} | {"network": _words(said["network"])}
    actions = said.get("actions")
    usual = action_names(RunConfig.actions)
    if isinstance(actions, list) and not all(action in usual for action in actions):  # a run may have more actions
        options["actions"] = _words(actions)
    return options


def _of_board(said: Mapping[str, Any]) -> dict[str, Any]:
    network = _words(said["network"])
    shown = {"paths": network == "paths"} if said["game"] == "snake" else {"afterstates": network == "afterstates"}
    if said["game"] == "tetris":
        shown["next_piece"] = said.get("next_piece", False)
    return {"board": said["board"], **shown}


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
            accepted = _words(wanted) + ", or some of these" * (field == "actions")
            raise ConfigError(
                "initial_policy", f"must have {field} {accepted}, as this run, got {_words(found)} in {path.name}"
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
    yield "network", f"dueling-{config.network_name}"
    frame_shape, stack, _ = observation_layout(config)
    yield "stack", stack
    if config.game == "mario":
        yield "actions", list(action_names(config.actions))
        yield "observation", config.observation
    else:
        yield "frame_shape", list(frame_shape)


def _words(value: Any) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value).removeprefix("dueling-")
