"""What a game brings that can teach its tasks without a policy: a search for what to do in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.distillation.tasks import Evaluations, Task


class SearchedTask(Task, Protocol):
    """A task whose expert is a search."""

    def prepare(
        self, *, stopped: Callable[[], bool], late: Callable[[], bool], on_progress: Callable[[str], object]
    ) -> None:
        """Search before the first step, until it is `stopped`. `on_progress` is told how far the search is. Raises
        `UserError` if it finds nothing, or not before it is `late`."""


class Search(Protocol):
    """Teaches tasks of a student."""

    def task(self, name: str, *, lanes: int, capacity: int, seed: int, evaluations: Evaluations) -> SearchedTask:
        """One of `engine.config.game.Distillation.searched`.

        Args:
            name: the task.
            lanes: games that are played at once.
            capacity: environment steps that the replay holds.
            seed: seed of the games and of exploration.
            evaluations: plays the student's episodes.
        """

    def close(self) -> None:
        """Release resources."""
