"""Writes metrics as JSON lines to `metrics.jsonl` in the run's folder, with the keys of `--log-format json`.

Episodes get fewer and fewer lines, as in TensorBoard (`engine.sinks.thinning`); progress gets one per second, about
1.5 MB an hour.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from engine.protocol.json_lines import line_of
from engine.protocol.messages import Episode, Evaluation, Failed, Finished, Progress
from engine.protocol.outcome import Outcome
from engine.protocol.sinks import Begin
from engine.runtime.files import open_regular
from engine.runtime.json_text import json_line
from engine.sinks.queued_writer import QueuedSink, QueuedWriter
from engine.sinks.thinning import Thinning

METRICS_FILE = "metrics.jsonl"
_CLOSE_S = 10.0
_LONGEST_LINE = 2**16


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

    def progress(self, progress: Progress) -> None:
        self._write(line_of(progress, self._outcome))

    def episode(self, episode: Episode) -> None:
        if self._thinning.is_due():
            self._write(line_of(episode, self._outcome))

    def evaluation(self, evaluation: Evaluation) -> None:
        self._write(line_of(evaluation, self._outcome))

    def end(self, end: Finished | Failed) -> None:
        self._write(line_of(end, self._outcome))

    def close(self) -> None:
        """Write what is left, but don't wait longer than `_CLOSE_S` for the disk."""
        if self._writer is not None:
            self._writer.close(_CLOSE_S)

    def _write(self, line: str | None) -> None:
        if self._writer is not None and line is not None:
            self._writer.put(f"{line}\n".encode())


def _end_of_lines(file: int) -> int:
    """The size of a file in bytes without its last line, if that was cut off by a crash or a full disk."""
    size = os.fstat(file).st_size
    tail = os.pread(file, _LONGEST_LINE, max(0, size - _LONGEST_LINE))
    return size - len(tail) + tail.rfind(b"\n") + 1
