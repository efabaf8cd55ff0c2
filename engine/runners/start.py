"""What a process that learns begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.config.run_config import RunConfig
from engine.runs import checkpoints


@dataclass(frozen=True)
class Start:
    """Learner `index` of `learners` of a run. They divide burn-in and transitions; a checkpoint's random states are
    learner 0's."""

    run: Path
    config: RunConfig
    resume_from: Path | None = None
    """A checkpoint."""
    index: int = 0
    learners: int = 1
    seed: Any = None
    """Of everything random in this process; None: the run's."""
    choices: dict[str, Any] | None = None
    """What another learner of the run has chosen (`Choices.state`)."""

    @property
    def seeds(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.config.seed if self.seed is None else self.seed)

    @property
    def replay_folder(self) -> Path:
        """Where a memory-mapped replay has its files."""
        return self.run / (f"replay-{self.index}" if self.index else "replay")


def env_steps_of(checkpoint: Path | None) -> int:
    """Environment steps of the run at a checkpoint; 0 without one."""
    return 0 if checkpoint is None else checkpoints.read_manifest(checkpoint).env_steps
