"""The interface of all games for `mario-tui play`: one game, played in real time by a policy or a person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from engine.envs.episode import EpisodeRecord
from engine.protocol.messages import Thought
from engine.protocol.outcome import Conditions, Outcome

PICTURES_PER_S = 30
"""Of a video, and of games that have no pictures of their own."""


class PersonControls(Protocol):
    """What the person presses, as bits of `engine.config.capabilities.PersonKeys`."""

    @property
    def buttons(self) -> int:
        """The buttons that are held."""

    def presses(self) -> list[int]:
        """Buttons pressed since the last call, in order."""


class PlayedGame(Protocol):
    """A game that is played tick by tick, with an episode that has begun."""

    ticks_per_s: float
    ticks_per_picture: int
    """Ticks between two pictures of a video."""
    stage: str
    """The option value that is played; empty in games without `engine.config.capabilities.HasStages`."""
    outcome: Outcome
    """Of its episodes."""
    actions: list[str]
    """Names of the actions in `thought`."""

    @property
    def steps(self) -> int:
        """Environment steps of the episode, including one under way."""

    @property
    def may_pause(self) -> bool:
        """Return whether no environment step is under way."""

    @property
    def idle(self) -> bool:
        """Return whether the next environment step waits for the person."""

    @property
    def place(self) -> str:
        """The one of the game's stages that the picture shows."""

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        """Begin an episode, in another stage if one is given. Raises `UserError`, and goes on, if it can't be played.

        Several tasks follow one another: the number of the episode, from 1, decides. The same number and seed give the
        same episode, if the same actions are taken.
        """

    def tick(self) -> EpisodeRecord | None:
        """Play on by one tick. Returns the episode if it ended; then `begin` follows."""

    def picture(self) -> NDArray[np.uint8]:
        """The screen, RGB uint8 [240, 256, 3]."""

    def facts(self) -> dict[str, int | str]:
        """Values to show beside the picture, by name; the name may be empty."""

    def thought(self) -> Thought | None:
        """Return what a policy is about to do, if that is shown."""

    def close(self) -> None:
        """Release resources."""


@runtime_checkable
class ShowsPolicies(Protocol):
    """A game that `mario-tui play` shows in another way than step by step, as it shows others."""

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame:
        """Make the game of a policy, with the `played_options` that were given."""
