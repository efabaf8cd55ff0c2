"""Snake for a person, in real time: it waits for the first key and then moves on in the last direction."""

from __future__ import annotations

from engine.config import joypad
from engine.envs.lanes import Lanes
from engine.evaluation.stepped_game import PersonPlayer
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.rules import SnakeLanes

_MOVES = {joypad.UP: 0, joypad.RIGHT: 1, joypad.DOWN: 2, joypad.LEFT: 3}


class SnakePerson(PersonPlayer):
    """A person playing Snake: it moves in the direction that was pressed last, but never back into its neck."""

    def __init__(self, lanes: Lanes, seed: int) -> None:
        super().__init__(lanes, seed)
        self._direction: int | None = None

    def on_tick(self, presses: list[int]) -> None:
        for button in presses:
            wanted = _MOVES.get(button)
            if wanted is not None and wanted != self._back():
                self._direction = wanted

    def _back(self) -> int | None:
        """The direction in which the neck lies; None while there is none."""
        assert isinstance(self._lanes, BoardLanes)
        board = self._lanes.board
        assert isinstance(board, SnakeLanes)
        path, width = board.path(0), board.frame_shape[-1]
        return {-width: 0, 1: 1, width: 2, -1: 3}[path[-2] - path[-1]] if len(path) > 1 else None

    def action(self) -> int | None:
        return self._direction
