"""Trained policies, for your own program: those that come with the package, those of runs, and files.

    policy = load("mario-1-1")
    actions = policy.act(obs)  # obs: uint8 [batch, stack, height, width]

Imports PyTorch when the first policy is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.runs import policies
from engine.runs.checkpoints import policy_metadata
from engine.runs.lookup import find_policy, origin_of

__all__ = ["Policy", "load", "names"]


class Policy:
    """A policy, on the CPU. Raises `UserError` if the file is not one, is damaged, or needs another version.

    Observations are those of its environment, uint8 [batch, stack, *frame_shape] or float32 for vectors, with the
    newest frame last. `masks`, bool [batch, actions], tells which actions are legal; without it, all are.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from engine.evaluation.policy import greedy_act, load_policy, values_of

        self.path = Path(path)
        self.name = origin_of(self.path).name
        self.metadata: Mapping[str, Any] = policy_metadata(self.path)
        """What the file says of itself, such as `game`, `stack`, `frame_shape`: docs/library.md#the-file."""
        network = load_policy(self.path)
        self._act, self._values = greedy_act(network), values_of(network)

    @property
    def actions(self) -> list[str]:
        """The names of the actions, if the file tells them."""
        return list(self.metadata.get("actions") or [])

    def act(self, obs: NDArray[Any], masks: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The best action for each observation, int64 [batch]."""
        return self._act(obs, masks)

    def q_values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """The expected return of each action, float32 [batch, actions]."""
        return self._values(obs)


def load(which: str | os.PathLike[str], *, run_dir: str | os.PathLike[str] | None = None) -> Policy:
    """The policy that `mario-tui eval` would take: an included one by its name, the best of a run (of those in
    `run_dir`, if that is given), of a checkpoint folder, or a file. Raises `UserError` if there is none."""
    return Policy(find_policy(os.fspath(which), None if run_dir is None else Path(run_dir)))


def names() -> list[str]:
    """The included policies that are installed."""
    return [card.name for card in policies.cards() if policies.path_of(card.name) is not None]
