"""Events that the host makes itself, from what it knows of the run, and what of it belongs into a record."""

from __future__ import annotations

import math
import os
import time

import msgspec

from engine.config.reading import Description
from engine.config.run_config import RunConfig
from engine.host.run_state import RunState
from engine.protocol.messages import PROTOCOL, Evaluation, Event, FinalEvaluation, Hello, Progress, Summary
from engine.protocol.outcome import Outcome
from engine.protocol.results import BestEvaluation
from engine.protocol.sinks import Begin
from engine.runs.run import HeldRun, Run, read_annotation


def hello(run: HeldRun, config: Description, state: RunState) -> Hello:
    """The run and its history; `state`: what has happened so far."""
    return Hello(
        protocol=PROTOCOL,
        run=run.name,
        path=str(run.path),
        game=config.game,
        task=config.task_label,
        runner=config.runner,
        pid=os.getpid(),
        steps=config.steps,
        render=config.render,
        points=list(state.points.items),
        points_stride=state.points.stride,
        published=dict(state.published),
        events=list(state.events),
        outcome=config.outcome,
        actions=config.action_names,
        episodes=config.episodes if isinstance(config, RunConfig) else None,
        obeys=state.obeys,
        folder=run.folder.identity,
    )


def begin(run: Run, config: Description, created_at: float) -> Begin:
    """Return what sinks are told of the run first."""
    annotation = read_annotation(run)
    return Begin(
        at=time.time(),
        run=run.name,
        path=str(run.path),
        game=config.game,
        task=config.task_label,
        runner=config.runner,
        steps=config.steps,
        outcome=config.outcome,
        options=config.options(),
        created_at=created_at,
        tags=annotation.tags,
        note=annotation.note,
    )


def current(state: RunState) -> list[Event]:
    """The newest event of each kind that a new client needs."""
    newest = (state.progress, state.lanes, state.members, state.time_splits, state.curriculum, state.system)
    return [event for event in newest if event is not None]


def back_at(progress: Progress, env_steps: int) -> Progress:
    """The progress of a run that restarts from a checkpoint."""
    return msgspec.structs.replace(
        progress, at=time.time(), state="starting", env_steps=env_steps, env_steps_per_s=0.0, frames_per_s=0.0
    )


def recorded(best: Evaluation, outcome: Outcome) -> BestEvaluation | None:
    """The best evaluation, of a game with this outcome, as the run's record has it; None if a figure is not finite."""
    if not all(map(math.isfinite, (best.mean_return, *best.results))):
        return None
    return BestEvaluation(best.env_steps, best.episodes, best.clears, best.mean_return, outcome.named(best.results))


def summary(
    p: Progress | None, run: str, reason: str, checkpoint: str | None, result: FinalEvaluation | None
) -> Summary:
    """The summary of a run that ends because of `reason`; `checkpoint`: the path of its newest. `p` is None if it ends
    before training began."""
    if p is None:
        return Summary(run, reason, 0, 0, 0, 0, 0.0, 0.0, 0.0, None, checkpoint)
    wall = max(p.wall_s, 1e-9)
    return Summary(
        run=run,
        reason=reason,
        env_steps=p.env_steps,
        frames=p.frames,
        updates=p.updates,
        episodes=p.episodes,
        wall_s=p.wall_s,
        env_steps_per_s=p.env_steps / wall,
        updates_per_s=p.updates / wall,
        mean_return=p.mean_return if math.isfinite(p.mean_return) else None,
        checkpoint=checkpoint,
        result=result,
    )
