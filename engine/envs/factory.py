"""Builds environments from a run's options or from a policy's metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.config.run_config import RunConfig
from engine.envs.curricula import FINAL_SHAPING, shaping
from engine.envs.mario import VIEWS, MarioLanes, MarioTask
from engine.envs.mario.task import STALL_STEPS
from engine.envs.vec_env import Lanes

if TYPE_CHECKING:
    import torch

    from engine.envs.boards.lanes import BoardLanes

_BOARD_OPTIONS = ("board", "reward", "pieces", "max_pieces", "next_piece", "death_penalty")
_TETRIS_SCALES = {"cells": 0.1, "lines": 0.1, "jumanji": 0.01}
"""Reward scales for the agent, which keep Q-values within tens."""


def make_lanes(
    config: RunConfig,
    lanes: int,
    *,
    threads: int,
    seed: int,
    device: torch.device | None = None,
    once: bool = False,
) -> Lanes:
    """Lanes of a run's game. Raises `UserError` if the cartridge can't be used.

    Args:
        config: options of the run.
        lanes: number of games.
        threads: threads that step Mario's lanes.
        seed: seed of all random decisions.
        device: where boards are played and their frames stay; None for the CPU, with frames as arrays.
        once: for evaluations: Mario's lanes play one episode each under the evaluation's conditions, and several stages
            are distributed over the lanes.
    """
    if config.game != "mario":
        options = {name: getattr(config, name) for name in _BOARD_OPTIONS}
        if not once:
            options |= {"late_starts": config.late_starts, "step_penalty": config.step_penalty, "gamma": config.gamma}
        return _make_boards(config.game, lanes, seed=seed, device=device, **options)
    rom = None if config.rom is None else Path(config.rom)
    task = make_eval_task(config) if once else make_task(config)
    ends_at_loops = config.reward == "progress" and not once and not task.whole_game
    return MarioLanes(
        dataclasses.replace(task, ends_at_loops=ends_at_loops),
        lanes,
        emulator=config.emulator,
        threads=threads,
        seed=seed,
        restart=not once,
        stage_per_lane=once,
        rom=rom,
        start_states=0.0 if once else config.start_states,
    )


def make_task(config: RunConfig) -> MarioTask:
    """The Mario task that a run trains on."""
    return MarioTask(
        stage=config.stage,
        reward=config.reward,
        actions=config.actions,
        frame_skip=config.frame_skip,
        swim_strokes=config.swim_strokes,
        sticky=config.sticky_actions,
        noop_max=config.noop_max,
        view=VIEWS[config.observation],
    )


def make_eval_task(config: RunConfig) -> MarioTask:
    """The Mario task on which a run is evaluated."""
    conditions = config.eval_conditions
    return dataclasses.replace(
        make_task(config),
        sticky=conditions.sticky_actions,
        noop_min=conditions.noop_min,
        noop_max=conditions.noop_max,
    )


def describe_task(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores about its task."""
    if config.game != "mario":
        return {"game": config.game, **{name: getattr(config, name) for name in _BOARD_OPTIONS}}
    return {
        "game": config.game,
        "stage": config.stage,
        "reward": config.reward,
        "emulator": config.emulator,
        "actions": list(make_task(config).action_names),
        "observation": config.observation,
        "frame_skip": config.frame_skip,
        "swim_strokes": config.swim_strokes,
    }


def describe_evaluation(config: RunConfig) -> dict[str, Any]:
    """The metadata that a policy file stores beside its score: the conditions under which it was reached."""
    return {"evaluation": msgspec.structs.asdict(config.eval_conditions)} if config.game == "mario" else {}


def lanes_of_policy(
    metadata: Mapping[str, Any],
    lanes: int,
    *,
    threads: int,
    seed: int,
    stage: str | None = None,
    emulator: str | None = None,
    noop_min: int = 0,
    noop_max: int = 0,
    sticky: float = 0.0,
    restart: bool = True,
    rom: Path | None = None,
) -> Lanes:
    """Lanes for playing a policy, from its metadata. For Mario, `stage` and `emulator` override the metadata.

    Without `restart`, Mario's lanes play one episode; after that they take hardly any time.
    """
    if metadata["game"] != "mario":
        return boards_of_policy(metadata, lanes, seed=seed)
    task = task_of_policy(
        metadata, stage=stage or metadata["stage"], noop_min=noop_min, noop_max=noop_max, sticky=sticky
    )
    return MarioLanes(
        task,
        lanes,
        emulator=emulator or metadata["emulator"],
        threads=threads,
        seed=seed,
        restart=restart,
        stage_per_lane=True,
        rom=rom,
    )


def boards_of_policy(metadata: Mapping[str, Any], lanes: int, *, seed: int) -> BoardLanes:
    """Board lanes for playing a policy, from its metadata, whose `board` must be one of `tasks_of`."""
    options = {name: metadata[name] for name in _BOARD_OPTIONS if name in metadata}  # old ones have not all
    frame_size = tuple(metadata["frame_shape"][-2:]) if "frame_shape" in metadata else None
    return _make_boards(metadata["game"], lanes, seed=seed, frame_size=frame_size, **options)


def task_of_policy(
    metadata: Mapping[str, Any],
    *,
    stage: str,
    noop_max: int,
    noop_min: int = 0,
    sticky: float = 0.0,
    frame_by_frame: bool = False,
) -> MarioTask:
    """The task for playing a policy, from its metadata. With `frame_by_frame`, a step is one frame: the caller has to
    repeat actions, sticky ones too, and to release A in the first frame of a stroke."""
    skip, stall = (1, STALL_STEPS * metadata["frame_skip"]) if frame_by_frame else (metadata["frame_skip"], STALL_STEPS)
    return MarioTask(
        stage=stage,
        actions=",".join(metadata["actions"]),
        frame_skip=skip,
        swim_strokes=not frame_by_frame and metadata["swim_strokes"],
        stall_steps=stall,
        sticky=sticky,
        noop_min=noop_min,
        noop_max=noop_max,
        view=VIEWS[metadata["observation"]],
    )


def _make_boards(
    game: str,
    lanes: int,
    *,
    seed: int,
    board: str,
    reward: str,
    pieces: str,
    death_penalty: float,
    max_pieces: int = RunConfig.max_pieces,
    next_piece: bool = False,
    late_starts: float = 0.0,
    step_penalty: float = 0.0,
    gamma: float = 1.0,
    device: torch.device | None = None,
    frame_size: tuple[int, int] | None = None,
) -> BoardLanes:
    from engine.envs.boards.lanes import BoardLanes  # imports torch, which only boards need
    from engine.envs.boards.snake import SnakeLanes
    from engine.envs.boards.tetris import TetrisLanes
    from engine.envs.boards.viewers import SnakeViewer, TetrisViewer

    width, height = (int(side) for side in board.split("x"))
    where = device or "cpu"
    # The time limit truncates episodes, because observations do not show the time.
    if game == "snake":
        snake = SnakeLanes(
            lanes,
            height=height,
            width=width,
            time_limit=500_000,  # hunger ends an episode long before
            truncate=True,
            stall_limit=2 * height * width,
            death_penalty=death_penalty,
            late_starts=late_starts,
            seed=seed,
            device=where,
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
    tetris = TetrisLanes(
        lanes,
        height=height,
        width=width,
        reward=reward,
        bag=pieces == "bag",
        next_piece=next_piece,
        time_limit=max_pieces,
        truncate=True,
        seed=seed,
        device=where,
    )
    return BoardLanes(
        tetris,
        masked=True,
        reward_scale=_TETRIS_SCALES[reward],
        new_viewer=partial(TetrisViewer, tetris),
        tensors=device is not None,
        set_level=lambda level: tetris.set_shaping(shaping(level), gamma),
    )


def tetris_gains(config: RunConfig) -> list[float]:
    """The reward of a placement that clears 0 to 4 lines, as the agent sees it."""
    from engine.envs.boards.tetris import gains  # imports torch

    return [gain * _TETRIS_SCALES[config.reward] for gain in gains(config.reward, _width(config))]


def tetris_costs(config: RunConfig) -> list[float]:
    """What a unit of a board's height, holes and bumpiness costs in the last phase of a curriculum, as the agent sees
    it; zeros without a curriculum."""
    nothing, line, *_ = tetris_gains(config)
    return [config.curriculum * weight * (line - nothing) / _width(config) for weight in FINAL_SHAPING]


def _width(config: RunConfig) -> int:
    return int((config.board or "").split("x")[0])
