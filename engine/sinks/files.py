"""Sinks that write files into the run's folder: event files of TensorBoard, and JSON lines.

TensorBoard also gets the hyperparameters, as summaries of its hparams plugin. It takes the columns of its table from
one experiment, the first that it finds in any run. So each run's names the options of all games: otherwise a folder
with runs of several games would show only those of one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import (
    DATA_TYPE_BOOL,
    DATA_TYPE_FLOAT64,
    DATA_TYPE_STRING,
    STATUS_FAILURE,
    STATUS_SUCCESS,
    Experiment,
    HParamInfo,
    MetricInfo,
    MetricName,
)
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.summary.writer.record_writer import RecordWriter

from engine.config.fields import is_text
from engine.config.run_config import options_of_all
from engine.protocol.json_lines import line_of
from engine.protocol.messages import Episode, Failed, Finished
from engine.protocol.outcome import Outcome
from engine.protocol.sinks import Begin, Restart, SinkEvent, next_event_file
from engine.runtime.files import new_file, open_regular
from engine.runtime.formats import json_line
from engine.sinks.sink import QueuedSink, QueuedWriter, ScalarSink, Thinning

METRICS_FILE = "metrics.jsonl"
_CLOSE_S = 10.0
_LONGEST_LINE = 2**24
"""Bytes; a loop's options alone may take a sixteenth."""


class JSONLines(QueuedSink):
    """Appends to the file of earlier hosts of the run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS_FILE
        self._thinning, self._outcome = Thinning(), Outcome()

    def begin(self, run: Begin) -> None:
        self._writer, self._outcome = None, run.outcome
        file = open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        os.ftruncate(file.fileno(), _end_of_lines(file.fileno()))
        self._writer = QueuedWriter(file, "metrics")
        self._write(json_line({"event": "begin", **msgspec.structs.asdict(run)}))

    def restart(self, env_steps: int) -> None:
        self._thinning.restart()
        self._write(json_line({"event": "restart", "env_steps": env_steps}))

    def take(self, event: SinkEvent) -> None:
        if isinstance(event, Begin | Restart):
            super().take(event)
        elif not isinstance(event, Episode) or self._thinning.is_due():
            self._write(line_of(event, self._outcome))

    def close(self) -> None:
        """Write what is left, but don't wait longer than `_CLOSE_S` for the disk."""
        if self._writer is not None:
            self._writer.close(_CLOSE_S)

    def _write(self, line: str | None) -> None:
        if self._writer is not None and line is not None:
            self._writer.put(f"{line}\n".encode())


def _end_of_lines(file: int) -> int:
    """The size of a file in bytes without its last line, if that was cut off by a crash or a full disk.

    Raises `OSError` if that line is longer than any of ours.
    """
    size = os.fstat(file).st_size
    tail = os.pread(file, _LONGEST_LINE, max(0, size - _LONGEST_LINE))
    end = tail.rfind(b"\n") + 1
    if not end and len(tail) < size:
        raise OSError(errno.EFBIG, f"its last line has more than {_LONGEST_LINE:,} bytes")
    return size - len(tail) + end


def experiment(options: Mapping[str, Any], metrics: Sequence[str]) -> Summary.Value:
    """The columns: options of all games and of this run, and the tags of scalars to compare by."""
    infos = [HParamInfo(name=name, type=_type(name, options.get(name))) for name in {**options_of_all(), **options}]
    compared = [MetricInfo(name=MetricName(tag=tag)) for tag in metrics]
    content = HParamsPluginData(experiment=Experiment(hparam_infos=infos, metric_infos=compared))
    return _summary(metadata.EXPERIMENT_TAG, content)


def session_start(run: Begin) -> Summary.Value:
    """The run's options. A number that is unset (`none`), or chosen later (`auto`), is left out: TensorBoard can't sort
    texts among numbers."""
    start = SessionStartInfo(start_time_secs=run.at)
    for name, value in run.options.items():
        kind = _type(name, value)
        if kind == DATA_TYPE_BOOL:
            start.hparams[name].bool_value = value
        elif kind == DATA_TYPE_STRING:
            start.hparams[name].string_value = str(value)
        elif not isinstance(value, str):
            start.hparams[name].number_value = value
    return _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))


def session_end(*, in_order: bool) -> Summary.Value:
    """The end of a run that was finished or stopped, or else failed."""
    end = SessionEndInfo(status=STATUS_SUCCESS if in_order else STATUS_FAILURE, end_time_secs=time.time())
    return _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end))


def _type(name: str, value: Any) -> int:
    """The plugin's type of an option, the same in every run. `value`: of one that the program doesn't know."""
    spec = options_of_all().get(name)
    if isinstance(value if spec is None else spec.default, bool):
        return DATA_TYPE_BOOL
    is_number = isinstance(value, int | float) if spec is None else not is_text(spec)
    return DATA_TYPE_FLOAT64 if is_number else DATA_TYPE_STRING


def _summary(tag: str, content: HParamsPluginData) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=metadata.NULL_TENSOR, metadata=metadata.create_summary_metadata(content))


def compared(outcome: Outcome) -> list[str]:
    """The scalars by which TensorBoard's table of hyperparameters compares runs of a game with this outcome."""
    judged = [*(f"mean_{name}" for name in ("return", *(result.name for result in outcome.results)))]
    judged += ["clear_rate"] if outcome.goal is not None else []
    return [*(f"{kind}/{name}" for kind in ("result", "eval") for name in judged), "charts/mean_return"]


class TensorBoard(ScalarSink, QueuedSink):
    """Writes one event file in the run's folder, and another one each time it begins.

    The file stays open: TensorBoard's own writer opens it by its name again for each record, and would write through a
    link that has taken the name. If it can't be written (the disk may be full), nothing more is: it may end in a
    partial record, beyond which no reader continues.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def begin(self, run: Begin) -> None:
        super().begin(run)
        self._writer = None
        path = self._folder / next_event_file(each.name for each in self._folder.iterdir())
        self._writer = QueuedWriter(RecordWriter(new_file(path)), "tensorboard")
        self._write_event(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._summarize(0, experiment(run.options, compared(run.outcome)), session_start(run))

    def restart(self, env_steps: int) -> None:
        super().restart(env_steps)
        log = SessionLog(status=SessionLog.START)  # has readers drop what was written for later steps
        self._write_event(Event(wall_time=time.time(), step=env_steps + 1, session_log=log))

    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        self._summarize(env_steps, *(Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()))

    def end(self, end: Finished | Failed) -> None:
        self._summarize(0, session_end(in_order=isinstance(end, Finished)))

    def close(self) -> None:
        """Write what is left, but don't wait longer than `_CLOSE_S` for the disk."""
        super().close()
        if self._writer is not None:
            self._writer.close(_CLOSE_S)

    def _summarize(self, step: int, *values: Summary.Value) -> None:
        self._write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write_event(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.put(event.SerializeToString())
