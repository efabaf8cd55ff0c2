"""Builds environments from a run's options or from a policy's metadata."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from engine.config.capabilities import HasEvaluationConditions, ReplaysPolicies
from engine.config.game import game_of, options_with
from engine.config.reading import config_of_policy
from engine.config.run_config import RunConfig
from engine.envs.lanes import Lanes
from engine.errors import UserError

if TYPE_CHECKING:
    import torch


_PAGE = "docs/plugins.md"


class MakeLanes(Protocol):
    """What a game names as its `lanes`."""

    def __call__(
        self,
        config: RunConfig,
        lanes: int,
        *,
        threads: int,
        seed: int,
        device: torch.device | None = None,
        evaluation: bool = False,
    ) -> Lanes:
        """Make lanes of a run.

        Args:
            config: options of the run.
            lanes: number of games.
            threads: threads that may step them.
            seed: seed of all random decisions.
            device: where frames of games that are computed in tensors stay; None for the CPU, with frames as arrays.
            evaluation: whether evaluations, or a policy, are played in them: under the evaluation's conditions, one
                episode in each lane if the game has no reason to play on, and several tasks distributed over the lanes.
        """


@runtime_checkable
class DescribesTask(Protocol):
    """A game whose policy files say more of their task than the options with the role `policy`, or say it in other
    words."""

    def task_metadata(self, config: RunConfig) -> dict[str, Any]:
        """Return what they say besides."""


def make_lanes(
    config: RunConfig,
    lanes: int,
    *,
    threads: int,
    seed: int,
    device: torch.device | None = None,
    evaluation: bool = False,
) -> Lanes:
    """Make lanes of a run. Raises `UserError` if a file can't be used, and `ValueError` if the lanes are not what the
    game said of them: no policy that learned from them could be played."""
    make: MakeLanes = pkgutil.resolve_name(config.game_info.lanes)
    if lacking := sorted(getattr(make, "__abstractmethods__", ())):
        raise UserError(f"--game {config.game}: {config.game_info.lanes} must have {', '.join(lacking)}; see {_PAGE}")
    made = make(config, lanes, threads=threads, seed=seed, device=device, evaluation=evaluation)
    if made.spec != config.spec or made.lanes != lanes:
        made.close()
        raise ValueError(
            f"{config.game_info.lanes} must make {lanes} with {config.spec}, got {made.lanes} with {made.spec}"
        )
    return made


def describe_task(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores about its task."""
    options = {name: config.value(name) for name in options_with("policy", config.game)}
    game = config.game_info
    also = game.task_metadata(config) if isinstance(game, DescribesTask) else {}
    return {"game": config.game, **options, **also}


def describe_evaluation(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores beside its score: in how many episodes it was reached, and under which
    conditions."""
    varies = isinstance(config.game_info, HasEvaluationConditions)
    conditions = {"evaluation": msgspec.structs.asdict(config.eval_conditions)} if varies else {}
    return {"eval_episodes": config.eval_episodes, **conditions}


def lanes_of_policy(metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any) -> Lanes:
    """Make lanes for playing a policy, from its metadata. `others`: what `ReplaysPolicies.lanes_of_policy` takes."""
    game = game_of(metadata["game"])
    if isinstance(game, ReplaysPolicies):
        return game.lanes_of_policy(metadata, lanes, threads=threads, seed=seed, **others)
    return make_lanes(config_of_policy(metadata), lanes, threads=threads, seed=seed, evaluation=True)


@runtime_checkable
class HasWays(Protocol):
    """A game in which a run may begin some of its episodes on a way to the goal."""

    def begin_on_ways(
        self, config: RunConfig, lanes: Lanes, *, stopped: Callable[[], bool], log: Callable[[str], object]
    ) -> None:
        """If the run has such episodes, find the ways, unless the lanes know them; may take minutes."""
