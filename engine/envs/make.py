"""From a run's options, or what a policy says of itself, to its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config import RunConfig
from engine.envs.mario import VIEWS, MarioLanes, MarioTask
from engine.envs.mario.task import STALL_STEPS


def make_task(config: RunConfig) -> MarioTask:
    """The task that a run trains on."""
    return MarioTask(
        stage=config.stage,
        reward=config.reward,
        actions=config.actions,
        frame_skip=config.frame_skip,
        sticky=config.sticky_actions,
        noop_max=config.noop_max,
        view=VIEWS[config.observation],
    )


def make_lanes(config: RunConfig, lanes: int, *, threads: int, seed: int) -> MarioLanes:
    """Lanes of a run's task on its emulator. Raises `UserError` if the cartridge can't be used."""
    rom = None if config.rom is None else Path(config.rom)
    return MarioLanes(make_task(config), lanes, emulator=config.emulator, threads=threads, seed=seed, rom=rom)


def describe_task(config: RunConfig) -> dict[str, Any]:
    """What a policy file keeps of the task it was trained on."""
    return {
        "game": config.game,
        "stage": config.stage,
        "emulator": config.emulator,
        "actions": list(make_task(config).action_names),
        "observation": config.observation,
        "frame_skip": config.frame_skip,
    }


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
