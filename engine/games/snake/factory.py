"""Makes lanes of Snake, and its game for a person, in real time. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from engine.config.capabilities import DOWN, LEFT, RIGHT, UP
from engine.config.run_config import RunConfig
from engine.envs.lanes import Lanes
from engine.evaluation.stepped_game import PersonPlayer
from engine.games.boards.board_game import size_of
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.options import options_of
from engine.games.snake.rules import SnakeLanes
from engine.games.snake.viewer import SnakeViewer


def of_run(
    config: RunConfig,
    lanes: int,
    *,
    threads: int,
    seed: int,
    device: torch.device | None = None,
    evaluation: bool = False,
) -> BoardLanes:
    """Make the lanes of a run; see `engine.envs.factory.MakeLanes`."""
    options = options_of(config)
    in_training: dict[str, Any] = (
        {} if evaluation else {"late_starts": options.late_starts, "step_penalty": options.step_penalty}
    )
    return make(
        lanes, seed=seed, device=device, board=options.board, death_penalty=options.death_penalty, **in_training
    )


def of_policy(metadata: Mapping[str, Any], lanes: int, *, seed: int) -> BoardLanes:
    """Make lanes for playing a policy, whose frames may be larger than those of its board."""
    shape = metadata.get("frame_shape")
    frame_size = None if shape is None else (shape[-2], shape[-1])
    return make(
        lanes, seed=seed, frame_size=frame_size, board=metadata["board"], death_penalty=metadata["death_penalty"]
    )


def make(
    lanes: int,
    *,
    seed: int,
    board: str,
    death_penalty: float,
    late_starts: float = 0.0,
    step_penalty: float = 0.0,
    device: torch.device | None = None,
    frame_size: tuple[int, int] | None = None,
) -> BoardLanes:
    """Lanes with these options; see `engine.games.snake.game`, and `BoardLanes` for `frame_size`.

    `device`: where boards are played and their frames stay; None for the CPU, with frames as arrays.
    """
    width, height = size_of(board)
    snake = SnakeLanes(
        lanes,
        height=height,
        width=width,
        time_limit=500_000,  # hunger ends an episode long before
        truncate=True,  # because observations do not show the time
        stall_limit=2 * height * width,
        death_penalty=death_penalty,
        late_starts=late_starts,
        seed=seed,
        device=device or "cpu",
    )
    return BoardLanes(
        snake,
        masked=False,
        reward_scale=1.0,
        new_viewer=partial(SnakeViewer, snake),
        tensors=device is not None,
        frame_size=frame_size,
        step_penalty=step_penalty,
        full_score=height * width - 1,  # a snake has one cell at first
    )


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
