"""Trackio: `--sinks trackio`. Writes to the folder `trackio` in that of the sweep or run, unless `TRACKIO_DIR`,
`TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` name another place.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from engine.extras.trackers import PROJECT, identity, store_of
from engine.protocol.sinks import Begin
from engine.sinks.sink import ScalarSink


class Trackio(ScalarSink):
    """A run that is resumed is found again by its name."""

    def __init__(self) -> None:
        super().__init__()
        self._run: Any = None

    def begin(self, run: Begin) -> None:
        super().begin(run)
        is_remote = any(os.environ.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"))
        if not is_remote:  # it would ask the hub for the name of a user who is logged in
            os.environ["HF_HUB_OFFLINE"] = "1"
        store = None if "TRACKIO_DIR" in os.environ else store_of(run, "trackio", "trackio")
        if store is not None:
            os.environ["TRACKIO_DIR"] = str(store.path)
        is_shared = is_remote or store is None or store.is_shared
        os.chdir("/")  # nothing in the run's folder, which may come from elsewhere, is taken for a part of it
        import trackio

        lock = contextlib.nullcontext() if store is None or is_remote else store.lock()
        with lock, contextlib.redirect_stdout(io.StringIO()):  # a banner, and a command that misses the folder
            self._run = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=f"{run.run}-{identity(run)}" if is_shared else run.run,
                config={**run.options, "tags": list(run.tags), "note": run.note},
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        self._run.log(scalars, step=env_steps)

    def close(self) -> None:
        super().close()
        if self._run is not None:
            self._run.finish()
