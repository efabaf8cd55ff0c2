"""What games that can be distilled have besides others: how policies become one, and searches that teach.

The program's own games have it in adapters (`ADAPTERS`), those of packages in their descriptors. Imports no torch: the
command line reads it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engine.config.capabilities import CommandOption
from engine.config.game import game_of, games
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.extras.distillation.tasks import Search


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How `mario-tui distill` makes one policy from several of a game."""

    network: str
    """Of the student, unless another is given."""
    lanes: int
    """Of each task."""
    must_agree: tuple[str, ...] = ()
    """Fields of the metadata in which all teachers must agree."""
    copied: tuple[str, ...] = ()
    """Fields of the metadata that the student has from its first teacher."""
    searched: tuple[str, ...] = ()
    """Tasks that can be given instead of a policy: those of a `Searchable` game."""
    untaught: tuple[str, ...] = ()
    """Values of the option `tasks` whose policies can't be teachers."""
    options: Mapping[str, CommandOption] = field(default_factory=dict)
    """Options of the game that the command takes. `network` is the student's; others go to its lanes."""
    search_options: tuple[str, ...] = ()
    """Those that go to `Searchable.described_for_search` instead."""
    told: tuple[str, ...] = ()
    """Those that the student's metadata tells among what it depends on."""


@runtime_checkable
class Distillable(Protocol):
    """Has policies that can be distilled into one: a game's descriptor, or its adapter."""

    distillation: Distillation


@runtime_checkable
class Searchable(Protocol):
    """Has a search that can teach tasks without a policy."""

    def described_for_search(self, task: str, like: Mapping[str, Any], **others: Any) -> dict[str, Any]:
        """Return the metadata of a teacher that is a search, for one of the tasks in `Distillation.searched`, with the
        `search_options` that were given. It sees what the policy with the metadata `like` sees, if that is not
        empty."""

    def search_options_of(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        """Return the `search_options` of a student with this metadata."""

    def make_search(self, student: Mapping[str, Any], *, seed: int, threads: int, **others: Any) -> Search:
        """Make what teaches tasks without a policy.

        Args:
            student: its metadata.
            seed: seed of the search.
            threads: threads that step the lanes of a task.
            others: those of `Distillation.options` that are for lanes.
        """


ADAPTERS = {
    "mario": "engine.extras.distillation.games:MarioDistillation",
    "snake": "engine.extras.distillation.games:SnakeDistillation",
}
"""What is `Distillable`, by the game's name, where the game's descriptor is not."""


def adapter_of(game: str) -> Any:
    """Return what may be `Distillable` and `Searchable` for a game: its adapter, or its descriptor."""
    return pkgutil.resolve_name(ADAPTERS[game])() if game in ADAPTERS else game_of(game)


def distillable() -> tuple[str, ...]:
    """Return the games whose policies can be distilled."""
    return tuple(name for name in games() if isinstance(adapter_of(name), Distillable))


def distillation_of(game: str) -> Distillation:
    """Return how policies of a game are distilled. Raises `UserError` if they can't be."""
    adapter = adapter_of(game)
    if not isinstance(adapter, Distillable):
        raise UserError(f"game must be {' or '.join(distillable())}, got {game}")
    return adapter.distillation


def options_of_searches(student: Mapping[str, Any]) -> dict[str, str]:
    """Return the `search_options` of a student with this metadata; none unless a search was one of its teachers."""
    adapter = adapter_of(student["game"])
    if not isinstance(adapter, Searchable) or not {*student["teachers"]} & {*distillation_of(student["game"]).searched}:
        return {}
    return adapter.search_options_of(student)
