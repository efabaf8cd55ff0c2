"""Makes lanes of Snake. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from engine.config.run_config import RunConfig
from engine.games.boards.board_game import size_of
from engine.games.boards.lanes import BoardLanes
from engine.games.snake.options import SnakeOptions
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
    options = SnakeOptions.of(config)
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
