"""Curricula, which change the tasks or the reward of a run as it makes progress.

The progress of a curriculum is one number, its level: phase n is level n, counted from 0, and a fraction blends in the
next phase. The coordinator of a run sets it (`Curriculum`), and all lanes apply it (`Lanes.set_curriculum_level`). A
game brings its own (`engine.config.game.Game.make_curriculum`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engine.protocol import messages
from engine.protocol.messages import Part


class Curriculum(Protocol):
    """Sets the level of a run."""

    level: float
    phases: tuple[str, ...]
    """Names of the phases."""

    def record_episode(self, task: str, success: bool) -> None:
        """Count an episode of a lane that hardly explores, and whether it reached the game's goal. May raise the
        level."""

    def advance(self, env_steps: int) -> None:
        """Set the level for a run that has played `env_steps` environment steps."""

    def parts(self) -> list[Part]:
        """The tasks or reward terms with their current weights."""

    def goal(self) -> str:
        """The condition for the next phase; empty in the last phase."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint (JSON)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a `state`."""


def report(curriculum: Curriculum) -> messages.Curriculum:
    """The message that the dashboard's panel shows."""
    phase = int(curriculum.level)
    return messages.Curriculum(
        phase=phase + 1,
        phases=len(curriculum.phases),
        name=curriculum.phases[phase],
        goal=curriculum.goal(),
        parts=curriculum.parts(),
    )
