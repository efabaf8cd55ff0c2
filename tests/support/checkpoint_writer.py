"""A process that only writes checkpoints of a small learner, for `test_killed_writer`.

It is a separate module, so that a fork server imports torch once for all of these processes.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import torch

from engine.config.game import Spec
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.runners.learning import factory
from engine.runners.learning.checkpoint import write_checkpoint
from engine.runners.learning.learner import Learner
from engine.runners.start import Start, env_steps_of
from engine.runs import checkpoints
from engine.runs.run import Run

SPEC = Spec((5, 5, 5), 4, stack=1, hold=1, masked=False)
KEEP = 2


def config(run_dir: Path) -> RunConfig:
    options = {"game": "snake", "board": "5x5", "amp": False, "burnin": 100, "buffer_size": 1000}
    return make_config({**options, "run_dir": str(run_dir)})


def make_learner(config: RunConfig, resume_from: Path | None) -> Learner:
    return factory.make_learner(Start(Path(), config, resume_from), SPEC, seed=0)


def tensors(learner: Learner) -> list[torch.Tensor]:
    """Tensors from three of the files of a checkpoint."""
    agent = learner.agent
    return [*agent.online.parameters(), *agent.target.parameters(), *agent.optimizer_tensors().values()]


def write_forever(path: Path, announce: Connection) -> None:
    """Resume from the newest checkpoint and write more. All numbers in a checkpoint are its step; every third one
    replaces the last."""
    run = Run(path)
    checkpoints.recover(run)
    newest = checkpoints.newest(run)
    config = run.config()
    learner, env_steps = make_learner(config, newest), env_steps_of(newest)
    written = 0
    while True:
        env_steps += written % 3 > 0 or written == 0
        with torch.no_grad():
            for tensor in tensors(learner):
                tensor.fill_(env_steps)
        learner.agent.updates = env_steps
        partial, final = (path / name for name in names(env_steps))
        write_checkpoint(learner, partial, env_steps, config, {}, {})
        checkpoints.commit(partial, final)
        checkpoints.rotate(run, KEEP)
        written += 1
        announce.send(env_steps)


def names(env_steps: int) -> tuple[str, str]:
    name = checkpoints.folder_name(env_steps)
    return f".{name}.partial", name
