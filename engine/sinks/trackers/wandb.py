"""Weights & Biases: `--sinks wandb`. Writes to the folder `wandb` in the run's, which `wandb sync` uploads, or with
`WANDB_MODE=online` to the server as well.

Steps of W&B only grow, but a run may go back to a checkpoint. So the x-axis is a metric, `env_steps`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from engine.protocol.messages import Failed, Finished
from engine.protocol.sinks import Begin
from engine.sinks.trackers import PROJECT, PolicySink, identity


class WandB(PolicySink):
    """Each host of a run writes a folder of its own; all belong to one run of W&B."""

    def __init__(self) -> None:
        super().__init__()
        self._run: Any = None
        self._exit_code = 1

    def begin(self, run: Begin) -> None:
        super().begin(run)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers
        os.environ.setdefault("WANDB_DATA_DIR", str(Path(run.path) / "wandb"))  # for copies of the policy
        # It takes settings, such as the server that gets the user's key, from the working directory, which is the
        # run's folder and may come from elsewhere.
        os.chdir("/")
        import wandb

        self._run = wandb.init(
            mode=os.environ.get("WANDB_MODE", "offline"),
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=run.path,
            id=f"{run.run}-{identity(run)}",
            resume="allow",
            name=run.run,
            config=run.options,
            tags=run.tags,
            notes=run.note,
            # Git would obey the settings of a repository in the run's folder.
            settings=wandb.Settings(quiet=True, console="off", disable_git=True, disable_code=True, save_code=False),
        )
        for path in Path(run.path, "wandb").rglob("*"):
            if path.is_symlink():  # to its logs; a run with links in its folder is not resumed
                path.unlink()
        self._run.define_metric("*", step_metric="env_steps")

    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        self._run.log({"env_steps": env_steps, **scalars})

    def end(self, end: Finished | Failed) -> None:
        super().end(end)
        self._exit_code = 0 if isinstance(end, Finished) else 1

    def write_policy(self, path: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"policy-{self._run.id}", type="model")
        artifact.add_file(str(path), skip_cache=True)
        self._run.log_artifact(artifact)

    def close(self) -> None:
        super().close()
        if self._run is not None:
            self._run.finish(self._exit_code)
