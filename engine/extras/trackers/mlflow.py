"""MLflow: `--sinks mlflow`. Writes to the database `mlflow.db` in the folder of the sweep or run, or to what
`MLFLOW_TRACKING_URI` names.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from engine.extras.trackers import PROJECT, PolicySink, identity, store_of
from engine.protocol.messages import Evaluation, Failed, Finished, Progress
from engine.protocol.sinks import Begin
from engine.runtime.files import open_regular

_MOST_METRICS, _MOST_PARAMETERS = 1000, 100
"""What MLflow takes in one call."""
_IDENTITY = "mario_tui.run"
"""The tag by which a run is found again after a resume."""


class MLflow(PolicySink):
    """Writes once a second and at each evaluation, but less often where that would take a fifth of the time, such as
    beside many runs of a sweep: a call takes some 40 ms, however many metrics it has."""

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._id = ""
        self._lock: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._waiting: list[Any] = []
        self._next_s = 0.0
        self._status = "KILLED"

    def begin(self, run: Begin) -> None:
        super().begin(run)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # to its makers
        artifacts = None
        if not (uri := os.environ.get("MLFLOW_TRACKING_URI", "")):
            store = store_of(run, "mlflow.db", "mlflow.db*", "mlartifacts")
            self._lock = store.lock
            artifacts = (store.path.parent / "mlartifacts").as_uri()
            open_regular(store.path, os.O_RDWR | os.O_CREAT).close()  # it may come from elsewhere, and be a link
            uri = f"sqlite:///{store.path}"
        with self._lock():  # MLflow fails on a database that another process is just giving its tables
            self._begin(run, uri, artifacts)

    def _begin(self, run: Begin, uri: str, artifacts: str | None) -> None:
        """Find the run or create it. `artifacts`: where those of its experiment must be."""
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = client.get_experiment_by_name(name)
        experiment_id = client.create_experiment(name, artifacts) if experiment is None else experiment.experiment_id
        known = client.search_runs([experiment_id], f"tags.`{_IDENTITY}` = '{identity(run)}'", max_results=1)
        begun = (
            known[0] if known else client.create_run(experiment_id, tags={_IDENTITY: identity(run)}, run_name=run.run)
        )
        self._id = begun.info.run_id
        if artifacts is not None and not begun.info.artifact_uri.startswith(f"{artifacts}/"):
            self.keeps_policy = False  # the database comes from elsewhere, and might name any place
        client.update_run(self._id, status="RUNNING")
        options = {name: str(value) for name, value in run.options.items()}
        # A parameter can't be changed: what a resume changes is a tag.
        before = {**begun.data.params, **begun.data.tags}
        changed = [RunTag(name, value) for name, value in options.items() if before.get(name, value) != value]
        new = [Param(name, value) for name, value in options.items() if name not in begun.data.params]
        tags = [RunTag("mlflow.note.content", run.note), *(RunTag(tag, "true") for tag in run.tags)]
        for start in range(0, len(new), _MOST_PARAMETERS):
            client.log_batch(self._id, params=new[start : start + _MOST_PARAMETERS])
        client.log_batch(self._id, tags=[*tags, *changed])
        self._client = client

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        self._flush_if_due()

    def evaluation(self, evaluation: Evaluation) -> None:
        super().evaluation(evaluation)
        self._flush_if_due()

    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        self._waiting += [Metric(tag, value, now, env_steps) for tag, value in scalars.items()]

    def end(self, end: Finished | Failed) -> None:
        self._status = "FINISHED" if isinstance(end, Finished) else "FAILED"
        super().end(end)

    def write_policy(self, path: Path) -> None:
        self._client.log_artifact(self._id, str(path), "policy")

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._flush()
            with self._lock():
                self._client.set_terminated(self._id, self._status)

    def _flush_if_due(self) -> None:
        if (begun_s := time.monotonic()) >= self._next_s:
            self._flush()
            self._next_s = time.monotonic() + 4 * (time.monotonic() - begun_s)

    def _flush(self) -> None:
        while self._waiting:
            with self._lock():
                self._client.log_batch(self._id, metrics=self._waiting[:_MOST_METRICS])
            del self._waiting[:_MOST_METRICS]
