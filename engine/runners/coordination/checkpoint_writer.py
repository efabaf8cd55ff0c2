"""Writes the checkpoints and policies of a run while it runs. If that fails, training continues."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.protocol.messages import Saved, Written
from engine.runners.learning.checkpoint import write_checkpoint
from engine.runners.learning.learner import Learner
from engine.runners.learning.policy_file import save_policy
from engine.runners.parent_link import ParentLink
from engine.runs import checkpoints
from engine.runs.run import Run
from engine.runtime.files import is_full, why_not_written

_SAVING_S = 600.0
"""Seconds that writing one piece of a checkpoint may take before the host treats this process as hung."""


class CheckpointWriter:
    """Writes what `learner` has learned into the folder `run`. `config`: the run's own."""

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, learner: Learner) -> None:
        self._run, self._config, self._link, self._learner = run, config, link, learner
        self._writes = 0

    def write(self, env_steps: int, extra: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
        """Write a partial folder, which the host checks, renames and announces; `extra` and `arrays` as in
        `write_checkpoint`. Returns whether that succeeded; the host decides what a missing final checkpoint means."""
        name = checkpoints.folder_name(env_steps)
        self._writes += 1  # the host may still be committing one of the same step
        partial, final = self._run / f".{name}.{self._writes}.partial", self._run / name
        beat = functools.partial(self._link.beat, _SAVING_S)
        beat()
        try:
            while True:
                try:
                    write_checkpoint(self._learner, partial, env_steps, self._config, extra, arrays, beat)
                    break
                except Exception as error:  # safetensors raises exceptions of its own when the disk is full
                    shutil.rmtree(partial, ignore_errors=True)  # frees space on a full disk
                    if not (is_full(error) and self._give_way(env_steps)):
                        self._link.log(
                            f"{why_not_written(error)}: no checkpoint was written at {env_steps:,} steps", "error"
                        )
                        return False
        finally:
            self._link.beat()
        self._link.send(Written(partial=str(partial), final=str(final), env_steps=env_steps))
        return True

    def save_policy(self, env_steps: int) -> None:
        """Write a policy file among the run's `policies`, and announce it."""
        folder = self._run / "policies"
        path = folder / f"policy-{env_steps:012d}.safetensors"
        partial = folder / f".{path.name}.partial"
        try:
            folder.mkdir(exist_ok=True)
            save_policy(self._learner, partial, env_steps)
            partial.replace(path)
        except Exception as error:  # see `write`
            self._link.log(f"{why_not_written(error)}: the policy was not saved", "error")
            return
        self._link.send(Saved(kind="policy", path=str(path), env_steps=env_steps))

    def _give_way(self, env_steps: int) -> bool:
        """Remove the oldest checkpoint, as the disk is full. Returns whether that made room for a newer one."""
        removed = checkpoints.give_way(Run(self._run), lambda done: self._link.beat(_SAVING_S))
        if removed is not None:
            text = f"the disk is full: {removed.name} was removed to make room for the checkpoint at {env_steps:,}"
            self._link.log(text, "warning")
        return removed is not None
