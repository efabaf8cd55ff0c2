"""A small learner, and transitions for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.envs.lanes import VectorStep
from engine.runners.learning.factory import make_learner as make
from engine.runners.learning.learner import Learner
from engine.runners.start import Start

CONFIG = RunConfig(parallel_envs=2, batch_size=8, burnin=40, buffer_size=400, n_step=2, sync_every=10, replay_ratio=4)
SPEC = Spec((50, 60), 5, stack=4, hold=8, masked=False)


def feed(learner: Learner, steps: int, seed: int, reward: float = 1.0) -> None:
    """Append random frames with random ends of episodes."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        frames, finals = random.integers(0, 256, (2, 2, 50, 60)).astype(np.uint8)
        ended = random.random(2) < 0.1
        none = np.zeros(2, np.int64)
        step = VectorStep(
            frames=frames,
            final_frames=finals,
            rewards=np.full(2, reward, np.float32),
            terminated=ended,
            truncated=~ended & (random.random(2) < 0.1),
            returns=none,
            lengths=none,
            results=np.zeros((2, 1)),
            success=ended,
            from_start=none == 0,
            tasks=none - 1,
            game_frames=8,
        )
        learner.insert(step.played(frames, random.integers(0, 5, 2), None))
        learner.learn()


def make_learner(config: RunConfig = CONFIG, spec: Spec = SPEC, *, run: Path = Path(), **start: Any) -> Learner:
    return make(Start(run, config, **start), spec, seed=3)
