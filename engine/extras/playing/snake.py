"""Snake, played by a person."""

from __future__ import annotations

from typing import Any

from engine.config.capabilities import DOWN, LEFT, RIGHT, UP
from engine.config.game import Game
from engine.envs.lanes import Lanes
from engine.envs.played_game import PersonControls
from engine.extras.playing.stepped_game import PersonPlayer, SteppedGame, game_of_person
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.rules import SnakeLanes

_MOVES = {UP: 0, RIGHT: 1, DOWN: 2, LEFT: 3}


class SnakePerson(PersonPlayer):
    """A person playing Snake: it moves in the direction that was pressed last, but never back into its neck.

    Of two turns that are pressed within one step, as for a quick U-turn, the second is taken in the next step.
    """

    def __init__(self, lanes: Lanes, seed: int) -> None:
        super().__init__(lanes, seed)
        self._direction: int | None = None
        self._turn: int | None = None
        self._then: int | None = None

    def on_tick(self, presses: list[int]) -> None:
        for wanted in (_MOVES[button] for button in presses if button in _MOVES):
            if self._turn is None or (wanted - self._turn) % 4 == 2:  # the first one, or the opposite instead
                if wanted != self._back():
                    self._turn, self._then = wanted, None
            elif wanted != self._turn:
                self._then = wanted

    def _back(self) -> int | None:
        """The direction in which the neck lies; None while there is none."""
        assert isinstance(self._lanes, BoardLanes)
        board = self._lanes.board
        assert isinstance(board, SnakeLanes)
        path, width = board.path(0), board.frame_shape[-1]
        return {-width: 0, 1: 1, width: 2, -1: 3}[path[-2] - path[-1]] if len(path) > 1 else None

    def action(self) -> int | None:
        if self._turn is not None:
            self._direction, self._turn, self._then = self._turn, self._then, None
        return self._direction


def of_person(game: Game, controls: PersonControls, **options: Any) -> SteppedGame:
    """The game of a person, with these options of the game."""
    return game_of_person(game, SnakePerson, controls, **options)
