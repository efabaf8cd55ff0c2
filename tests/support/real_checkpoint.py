"""A checkpoint as a run of these options writes it before its first update."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from engine.envs.factory import make_lanes
from engine.runners.learning.checkpoint import write_checkpoint
from engine.runners.learning.factory import make_learner
from engine.runners.start import Start
from engine.runs import checkpoints
from engine.runs.run import Run


def add_checkpoint(run: Run, env_steps: int) -> Path:
    """Write one to a run that has none so far."""
    config = dataclasses.replace(run.config(), replay_device="host")
    lanes = make_lanes(config, 1, threads=1, seed=0)
    learner = make_learner(Start(run.path, config), lanes.spec, seed=0)
    lanes.close()
    partial, final = (run.path / f"{dot}{checkpoints.folder_name(env_steps)}" for dot in (".", ""))
    write_checkpoint(learner, partial, env_steps, run.config(), {"counters": {"env_steps": env_steps}}, {})
    learner.close()
    checkpoints.commit(partial, final)
    return final
