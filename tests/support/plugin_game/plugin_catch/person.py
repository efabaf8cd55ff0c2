"""Catch for a person: a press moves the paddle by a cell in the next step."""

from __future__ import annotations

from engine.config.capabilities import LEFT, RIGHT
from engine.envs.lanes import Lanes
from engine.extras.playing.stepped_game import PersonPlayer


class CatchPerson(PersonPlayer):
    def __init__(self, lanes: Lanes, seed: int) -> None:
        super().__init__(lanes, seed)
        self._move = 1

    def on_tick(self, presses: list[int]) -> None:
        for button in presses:
            self._move = {LEFT: 0, RIGHT: 2}.get(button, self._move)

    def action(self) -> int:
        move, self._move = self._move, 1
        return move
