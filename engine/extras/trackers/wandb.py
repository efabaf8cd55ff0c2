"""Weights & Biases: `--sinks wandb`. Writes to the folder `wandb` in that of the sweep or run, which `wandb sync`
uploads, or with `WANDB_MODE=online` to the server as well.

Steps of W&B only grow, but a run may go back to a checkpoint. So the x-axis is a metric, `env_steps`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.extras.trackers import PROJECT, PolicySink, identity, store_of
from engine.protocol.messages import Failed, Finished
from engine.protocol.sinks import Begin

_LINKS_EVERY_S = 0.1


class WandB(PolicySink):
    """Each host of a run writes a folder of its own; all belong to one run of W&B."""

    def __init__(self) -> None:
        super().__init__()
        self._run: Any = None
        self._exit_code = 1

    def begin(self, run: Begin) -> None:
        super().begin(run)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers
        store = store_of(run, "wandb")  # in it are only new folders, and for moments the links of other runs
        os.environ.setdefault("WANDB_DATA_DIR", str(store.path))  # for copies of the policy
        # It takes settings, such as the server that gets the user's key, from the working directory, which is the
        # run's folder and may come from elsewhere.
        os.chdir("/")
        import wandb

        with _without_links(store.path):
            self._run = wandb.init(
                mode=os.environ.get("WANDB_MODE", "offline"),
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                dir=str(store.path.parent),
                id=f"{run.run}-{identity(run)}",
                resume="allow",
                name=run.run,
                config=run.options,
                tags=run.tags,
                notes=run.note,
                # Git would obey the settings of a repository in the run's folder.
                settings=wandb.Settings(
                    quiet=True, console="off", symlink=False, disable_git=True, disable_code=True, save_code=False
                ),
            )
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


@contextlib.contextmanager
def _without_links(folder: Path) -> Iterator[None]:
    """Remove the link to its log that W&B makes whatever its settings are: a run with links is not resumed. It waits
    long for a server that does not answer, and may be killed then, so the link goes at once."""
    done = threading.Event()

    def remove() -> None:
        ends = False
        while not ends:
            ends = done.wait(_LINKS_EVERY_S)
            for path in folder.rglob("*.log"):
                if path.is_symlink():
                    path.unlink(missing_ok=True)  # another run of the sweep may have been first

    thread = threading.Thread(target=remove, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
