"""Guided episodes: they begin with actions that are not the agent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Guide(Protocol):
    """Chooses the actions of guided lanes."""

    @property
    def guided(self) -> NDArray[np.bool_]:
        """Lanes [lanes] whose episode began with the guide's actions."""

    @property
    def leads(self) -> NDArray[np.bool_]:
        """Lanes [lanes] in which the action that was chosen last is the guide's."""

    def find_ways(self, *, stopped: Callable[[], bool], log: Callable[[str], object]) -> None:
        """Find out what to do, unless `load_state` has restored it. Called before the run begins; may take minutes."""

    def lead(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The actions [lanes] that are carried out, from those of the agent."""

    def end(self, ended: NDArray[np.bool_]) -> None:
        """Forget the episodes that `ended` [lanes]."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a checkpoint: JSON values and arrays."""

    def load_state(self, random: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load a `state`. Raises `ValueError` if it can't be one."""

    def begin_unguided(self) -> None:
        """Leave the episodes in progress to the agent: those of a checkpoint without a guide."""
