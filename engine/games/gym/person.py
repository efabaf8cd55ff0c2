"""An environment for a person: in real time with the keys that are held, or a step for each key press if it has no
action for no key."""

from __future__ import annotations

from engine.envs.lanes import Lanes
from engine.envs.played_game import PersonControls
from engine.evaluation.stepped_game import PersonPlayer
from engine.games.gym.keys import EnvironmentKeys


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
