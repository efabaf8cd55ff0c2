"""From a run's options, or what a policy says of itself, to its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config.run_config import RunConfig
from engine.envs.curricula import shaping
from engine.envs.mario import VIEWS, MarioLanes, MarioTask
from engine.envs.mario.task import STALL_STEPS
from engine.envs.vec_env import Lanes

if TYPE_CHECKING:
    import torch

    from engine.envs.boards.lanes import BoardLanes

_BOARD_OPTIONS = ("board", "reward", "pieces", "death_penalty")
_TETRIS_SCALES = {"lines": 0.1, "jumanji": 0.01}
"""What the agent learns of a reward, so that values stay within tens."""


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

    Boards are played on `device`, where their frames stay; None: on the CPU, with frames in arrays. `once`: for
    evaluations in which a lane plays one episode, on its own of several stages.
    """
    if config.game != "mario":
        options = {name: getattr(config, name) for name in _BOARD_OPTIONS}
        return _make_boards(config.game, lanes, seed=seed, device=device, **options)
    rom = None if config.rom is None else Path(config.rom)
    return MarioLanes(
        make_task(config),
        lanes,
        emulator=config.emulator,
        threads=threads,
        seed=seed,
        restart=not once,
        in_turns=once,
        rom=rom,
    )


def make_task(config: RunConfig) -> MarioTask:
    """What a run plays on the console."""
    return MarioTask(
        stage=config.stage,
        reward=config.reward,
        actions=config.actions,
        frame_skip=config.frame_skip,
        sticky=config.sticky_actions,
        noop_max=config.noop_max,
        view=VIEWS[config.observation],
    )


def describe_task(config: RunConfig) -> dict[str, Any]:
    """What a policy file keeps of the task it was trained on."""
    if config.game != "mario":
        return {"game": config.game, **{name: getattr(config, name) for name in _BOARD_OPTIONS}}
    return {
        "game": config.game,
        "stage": config.stage,
        "emulator": config.emulator,
        "actions": list(make_task(config).action_names),
        "observation": config.observation,
        "frame_skip": config.frame_skip,
    }


def lanes_of_policy(
    said: Mapping[str, Any],
    lanes: int,
    *,
    threads: int,
    seed: int,
    stage: str | None = None,
    emulator: str | None = None,
    noop_max: int = 0,
    restart: bool = True,
    rom: Path | None = None,
) -> Lanes:
    """Lanes for playing a policy, from its description; Mario's stages and console can be other ones.

    Without `restart` Mario's lanes play one episode and then hardly cost anything.
    """
    if said["game"] != "mario":
        return boards_of_policy(said, lanes, seed=seed)
    task = task_of_policy(said, stage=stage or said["stage"], noop_max=noop_max)
    return MarioLanes(
        task,
        lanes,
        emulator=emulator or said["emulator"],
        threads=threads,
        seed=seed,
        restart=restart,
        in_turns=True,
        rom=rom,
    )


def boards_of_policy(said: Mapping[str, Any], lanes: int, *, seed: int) -> BoardLanes:
    """Boards for playing a policy."""
    return _make_boards(said["game"], lanes, seed=seed, **{name: said[name] for name in _BOARD_OPTIONS})


def task_of_policy(said: Mapping[str, Any], *, stage: str, noop_max: int, frame_by_frame: bool = False) -> MarioTask:
    """The task for playing a policy, from its description; `frame_by_frame` leaves holding actions to the caller."""
    skip, stall = (1, STALL_STEPS * said["frame_skip"]) if frame_by_frame else (said["frame_skip"], STALL_STEPS)
    return MarioTask(
        stage=stage,
        actions=",".join(said["actions"]),
        frame_skip=skip,
        stall_steps=stall,
        noop_max=noop_max,
        view=VIEWS[said["observation"]],
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
    device: torch.device | None = None,
) -> BoardLanes:
    from engine.envs.boards.lanes import BoardLanes  # torch is for those who play on boards
    from engine.envs.boards.snake import SnakeLanes
    from engine.envs.boards.tetris import TetrisLanes

    width, height = (int(side) for side in board.split("x"))
    where = device or "cpu"
    # The time limit truncates: nothing that the agent sees tells the time.
    if game == "snake":
        snake = SnakeLanes(
            lanes,
            height=height,
            width=width,
            truncate=True,
            stall_limit=2 * height * width,
            death_penalty=death_penalty,
            seed=seed,
            device=where,
        )
        return BoardLanes(snake, masked=False, reward_scale=1.0, tensors=device is not None)
    tetris = TetrisLanes(
        lanes, height=height, width=width, reward=reward, bag=pieces == "bag", truncate=True, seed=seed, device=where
    )
    return BoardLanes(
        tetris,
        masked=True,
        reward_scale=_TETRIS_SCALES[reward],
        tensors=device is not None,
        follow=lambda level: tetris.weigh(shaping(level)),
    )


def games_of(config: RunConfig) -> dict[str, Any]:
    """What must be the same for the games of a checkpoint to go on."""
    return {**describe_task(config), "lanes": config.parallel_envs, "rom": config.rom}
