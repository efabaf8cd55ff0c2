"""Makes lanes of Snake. Imports torch."""

from __future__ import annotations

from functools import partial

import torch

from engine.games.boards.board_game import size_of
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.rules import SnakeLanes
from engine.games.snake.viewer import SnakeViewer


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
