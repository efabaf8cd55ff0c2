"""What the metadata of a policy file may say. The file may be foreign, and what it says decides how large a network is
built: so it must name a task that a run can have, and the shapes must be those of the task. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from engine.config.conditions import Conditions
from engine.config.fields import ConfigError, must_be_one_of
from engine.config.game import Game
from engine.config.games import GAMES, game_of, own_options
from engine.config.run_config import RunConfig
from engine.config.tasks import config_of_policy
from engine.runs.run import Count, Score, Seconds

_MOST_PARTS = 32
"""Boards from whose policies one may have been distilled."""
_Side = Annotated[int, msgspec.Meta(ge=1, le=2**12)]


class _Metadata(msgspec.Struct):
    """Fields of every policy."""

    game: str
    network: str
    stack: _Side
    frame_shape: Annotated[list[_Side], msgspec.Meta(min_length=1, max_length=3)]
    outputs: _Side
    version: str = ""
    env_steps: Count = 0
    updates: Count = 0
    seed: Count = 0
    minutes: Seconds = 0.0
    score: Annotated[list[Score], msgspec.Meta(max_length=8)] = []
    evaluation: Conditions | None = None
    teachers: list[str] = []
    options: dict[str, bool | int | float | str | None] = {}
    actions: Annotated[list[str], msgspec.Meta(min_length=1, max_length=256)] | None = None
    board: str | None = None


def checked(said: Any) -> dict[str, Any]:
    """The metadata of a policy, with what the version before left out, and its task as a run's options say it. Raises
    `ValueError` saying what is wrong."""
    policy = msgspec.convert(said, _Metadata)
    if policy.game not in GAMES:
        raise ValueError(f"game {must_be_one_of(GAMES, policy.game)}")
    game = game_of(policy.game)
    network = policy.network.removeprefix("dueling-")  # the name before networks belonged to games
    if network not in game.networks and not (game.takes_networks and ":" in network):
        raise ValueError(f"network {must_be_one_of(game.networks, network)}")
    complete = {**game.of_earlier_policies, **said, "network": network}
    may_lack = {name for name, spec in own_options(game.name).items() if spec.default is None}
    missing = [name for name in game.policy_options if complete.get(name) is None and name not in may_lack]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    try:
        configs = _configs(game, complete)
        spec = game.spec_for_all([config.spec for config in configs])
    except ConfigError as error:
        raise ValueError(f"{error.field} {error.reason}") from None
    shapes = {"frame_shape": list(spec.frame_shape), "stack": spec.stack, "outputs": spec.actions}
    for name, wanted in shapes.items():
        if getattr(policy, name) != wanted:
            raise ValueError(f"{name} must be {wanted} for its task, got {getattr(policy, name)}")
    as_listed = {name: complete[name] for name in (game.tasks, "actions") if name in complete}
    return complete | {name: configs[0].value(name) for name in game.policy_options} | as_listed


def _configs(game: Game, said: Mapping[str, Any]) -> list[RunConfig]:
    """The options of runs that learn the parts of the policy's task. Raises `ConfigError` if no run can have them."""
    tasks = said[game.tasks]
    if not isinstance(tasks, str) or len(learned := game.learned_apart(tasks)) > _MOST_PARTS:
        raise ConfigError(game.tasks, f"must be text that names at most {_MOST_PARTS}, got {tasks!r}")
    if len(set(learned)) < len(learned):
        raise ConfigError(game.tasks, f"must name each once, got {tasks!r}")
    return [config_of_policy({**said, game.tasks: each}) for each in learned]
