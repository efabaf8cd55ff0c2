"""Makes Mario's lanes from a run's options or from a policy's metadata. Imports the console."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config.run_config import RunConfig
from engine.console.view import VIEWS
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.options import MarioOptions
from engine.games.mario.task import STALL_STEPS, MarioTask
from engine.protocol.outcome import Conditions

_AT_ONCE = Conditions(noop_max=0)
_USUAL_ENDS = 0.25
"""Share of a run's episodes in a random phase whose frames end where they do if the stage is played alone. Without it a
policy for 6-2 cleared 47 of 100 episodes in any phase, but none of those that begin as the stage alone does."""


def of_run(
    config: RunConfig, lanes: int, *, threads: int, seed: int, device: object = None, evaluation: bool = False
) -> MarioLanes:
    """Make the lanes of a run; see `engine.envs.factory.MakeLanes`. Frames are arrays wherever the run learns."""
    options = MarioOptions.of(config)
    task = make_eval_task(config) if evaluation else make_task(config)
    ends_at_loops = options.reward == "progress" and not evaluation and not task.whole_game
    usual_ends = 0.0 if evaluation else _USUAL_ENDS
    return MarioLanes(
        dataclasses.replace(task, ends_at_loops=ends_at_loops, usual_ends=usual_ends),
        lanes,
        emulator=options.emulator,
        threads=threads,
        seed=seed,
        restart=not evaluation,
        stage_per_lane=evaluation,
        rom=None if options.rom is None else Path(options.rom),
        start_states=0.0 if evaluation else options.start_states,
        guided=0.0 if evaluation else options.guide,
    )


def of_policy(
    metadata: Mapping[str, Any],
    lanes: int,
    *,
    threads: int,
    seed: int,
    stage: str | None = None,
    emulator: str | None = None,
    conditions: Conditions = _AT_ONCE,
    restart: bool = True,
    rom: Path | None = None,
) -> MarioLanes:
    """Lanes for playing a policy, from its metadata, which `stage` and `emulator` override.

    Without `restart`, they play one episode; after that they take hardly any time.
    """
    task = task_of_policy(metadata, stage=stage or metadata["stage"], conditions=conditions)
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


def make_task(config: RunConfig) -> MarioTask:
    """The Mario task that a run trains on."""
    options = MarioOptions.of(config)
    return MarioTask(
        stage=options.stage,
        reward=options.reward,
        actions=options.actions,
        frame_skip=options.frame_skip,
        swim_strokes=options.swim_strokes,
        sticky=options.sticky_actions,
        sticky_frames=options.sticky_frames,
        noop_max=options.noop_max,
        random_phase=options.random_phase,
        halfway_starts=options.halfway_starts,
        view=VIEWS[options.observation],
    )


def make_eval_task(config: RunConfig) -> MarioTask:
    """The Mario task on which a run is evaluated."""
    return dataclasses.replace(
        make_task(config), sticky=config.eval_conditions.sticky_actions, **_starts(config.eval_conditions)
    )


def _starts(conditions: Conditions) -> dict[str, Any]:
    """The options of `MarioTask` for the starts of an evaluation."""
    return {
        "noop_min": conditions.noop_min,
        "noop_max": conditions.noop_max,
        "random_phase": conditions.random_phase,
        "halfway_starts": conditions.halfway_starts,
    }


def task_of_policy(
    metadata: Mapping[str, Any],
    *,
    stage: str,
    conditions: Conditions,
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
        **_starts(conditions),
        sticky=0.0 if frame_by_frame else conditions.sticky_actions,
        view=VIEWS[metadata["observation"]],
    )
