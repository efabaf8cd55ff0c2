"""Builds environments from a run's options or from a policy's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.config.games import game_of
from engine.config.run_config import RunConfig
from engine.envs.lanes import Lanes

if TYPE_CHECKING:
    import torch


def make_lanes(
    config: RunConfig,
    lanes: int,
    *,
    threads: int,
    seed: int,
    device: torch.device | None = None,
    once: bool = False,
) -> Lanes:
    """Lanes of a run's game; see `engine.config.game.Game.make_lanes`. Raises `UserError` if a file can't be used, and
    `ValueError` if the lanes are not what the game said of them: no policy that learned from them could be played."""
    made = config.game_info.make_lanes(config, lanes, threads=threads, seed=seed, device=device, once=once)
    if made.spec != config.spec or made.lanes != lanes:
        made.close()
        raise ValueError(f"make_lanes must make {lanes} with {config.spec}, got {made.lanes} with {made.spec}")
    return made


def describe_task(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores about its task."""
    options = {name: config.value(name) for name in config.game_info.policy_options}
    return {"game": config.game, **options, **config.game_info.also_described(config)}


def describe_evaluation(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores beside its score: in how many episodes it was reached, and under which
    conditions."""
    conditions = config.game_info.describe_conditions(config)
    return {"eval_episodes": config.eval_episodes, **({"evaluation": conditions} if conditions else {})}


def lanes_of_policy(metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any) -> Lanes:
    """Lanes for playing a policy, from its metadata; see `engine.config.game.Game.lanes_of_policy`."""
    return game_of(metadata["game"]).lanes_of_policy(metadata, lanes, threads=threads, seed=seed, **others)
