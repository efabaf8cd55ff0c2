"""Gymnasium environments that are watched or played by a person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config.game import Game
from engine.config.reading import make_config
from engine.envs.lanes import Lanes
from engine.envs.played_game import PersonControls
from engine.extras.playing.stepped_game import PersonPlayer, SteppedGame, game_of_person, game_of_policy
from engine.games.gym.options import GymOptions
from engine.games.gym.spaces import EnvironmentKeys, keys_of, parsed
from engine.protocol.outcome import Conditions


class GymPerson(PersonPlayer):
    """A person playing an environment. An episode waits for the first key."""

    def __init__(self, lanes: Lanes, seed: int, keys: EnvironmentKeys, controls: PersonControls) -> None:
        super().__init__(lanes, seed)
        self._keys, self._controls = keys, controls
        self.paced = keys.person.held
        self._pressed: list[int] = []
        self._begun = False

    def on_tick(self, presses: list[int]) -> None:
        self._begun |= bool(presses)
        self._pressed += presses

    def action(self) -> int | None:
        if not self.paced:
            return self._legal(self._pressed.pop(0)) if self._pressed else None
        return self._legal(self._controls.buttons) if self._begun else None

    def _legal(self, buttons: int) -> int | None:
        action, masks = self._keys.action(buttons), self._lanes.masks
        return action if action is None or masks is None or masks[0, action] else None


def of_policy(policy: Path, metadata: Mapping[str, Any], conditions: Conditions) -> SteppedGame:
    """The game of a policy, from its file and its metadata."""
    own_steps = parsed(metadata["spaces"]).frames_per_s
    return game_of_policy(policy, metadata, conditions.epsilon, steps_per_s=own_steps / metadata["frame_skip"])


def of_person(game: Game, controls: PersonControls, **options: Any) -> SteppedGame:
    """The game of a person, with these options of the game."""
    chosen = GymOptions.of(make_config({"game": game.name, **options}))
    spaces = parsed(chosen.spaces)
    keys = keys_of(chosen.env, spaces)
    return game_of_person(
        game,
        lambda lanes, seed: GymPerson(lanes, seed, keys, controls),
        controls,
        steps_per_s=spaces.frames_per_s,
        **options,
    )
