"""Makes lanes of Tetris, and tells what its network knows of rewards. Imports torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from engine.config.game import options_with
from engine.config.run_config import RunConfig
from engine.games.boards.board_game import size_of
from engine.games.boards.lanes import BoardLanes
from engine.games.tetris.curriculum import FINAL_SHAPING, shaping
from engine.games.tetris.options import TetrisOptions
from engine.games.tetris.rules import TetrisLanes, gains
from engine.games.tetris.viewer import TetrisViewer

_SCALES = {"cells": 0.1, "lines": 0.1, "jumanji": 0.01}
"""Reward scales for the agent, which keep Q-values within tens."""


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
    options: dict[str, Any] = {name: config.value(name) for name in options_with("policy", config.game)}
    of_shaping: dict[str, Any] = {} if evaluation else {"gamma": config.gamma}
    return make(lanes, seed=seed, device=device, **options, **of_shaping)


def make(
    lanes: int,
    *,
    seed: int,
    board: str,
    reward: str,
    pieces: str,
    max_pieces: int,
    next_piece: bool,
    gamma: float = 1.0,
    device: torch.device | None = None,
) -> BoardLanes:
    """Lanes with these options; see `engine.games.tetris.game`.

    `gamma`: discount factor of the curriculum's shaping. `device`: where boards are played and their frames stay; None
    for the CPU, with frames as arrays.
    """
    width, height = size_of(board)
    tetris = TetrisLanes(
        lanes,
        height=height,
        width=width,
        reward=reward,
        bag=pieces == "bag",
        next_piece=next_piece,
        time_limit=max_pieces,
        truncate=True,  # because observations do not show the time
        seed=seed,
        device=device or "cpu",
    )
    return BoardLanes(
        tetris,
        masked=True,
        reward_scale=_SCALES[reward],
        new_viewer=partial(TetrisViewer, tetris),
        tensors=device is not None,
        set_level=lambda level: tetris.set_shaping(shaping(level), gamma),
    )


def scaled_gains(config: RunConfig) -> list[float]:
    """The reward of a placement that clears 0 to 4 lines, as the agent sees it."""
    options = TetrisOptions.of(config)
    return [gain * _SCALES[options.reward] for gain in gains(options.reward, size_of(options.board)[0])]


def scaled_costs(config: RunConfig) -> list[float]:
    """Return what a unit of a board's height, holes and bumpiness costs in the last phase of a curriculum, as the agent
    sees it; zeros without a curriculum."""
    options = TetrisOptions.of(config)
    nothing, line, *_ = scaled_gains(config)
    width, _ = size_of(options.board)
    return [options.curriculum * weight * (line - nothing) / width for weight in FINAL_SHAPING]
