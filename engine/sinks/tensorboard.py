"""Writes scalars and hyperparameters to TensorBoard event files, without importing torch."""

from __future__ import annotations

import os
import secrets
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from engine.protocol.messages import Failed, Finished
from engine.protocol.outcome import Outcome
from engine.protocol.sinks import Begin
from engine.runtime.files import new_file
from engine.sinks import hparams
from engine.sinks.queued_writer import QueuedSink, QueuedWriter
from engine.sinks.scalars import ScalarSink

_CLOSE_S = 10.0


def compared(outcome: Outcome) -> list[str]:
    """The scalars by which TensorBoard's table of hyperparameters compares runs of a game with this outcome."""
    means = [f"eval/mean_{name}" for name in ("return", *(result.name for result in outcome.results))]
    return [*means, *(["eval/clear_rate"] if outcome.goal is not None else []), "charts/mean_return"]


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
        # Readers sort files by name, so it begins with the time; with fractions, because a run may restart within a
        # second.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
        self._writer = QueuedWriter(RecordWriter(new_file(self._folder / name)), "tensorboard")
        self._write_event(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._summarize(0, hparams.experiment(run.options, compared(run.outcome)), hparams.session_start(run))

    def restart(self, env_steps: int) -> None:
        super().restart(env_steps)
        log = SessionLog(status=SessionLog.START)  # has readers drop what was written for later steps
        self._write_event(Event(wall_time=time.time(), step=env_steps + 1, session_log=log))

    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        self._summarize(env_steps, *(Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()))

    def end(self, end: Finished | Failed) -> None:
        self._summarize(0, hparams.session_end(in_order=isinstance(end, Finished)))

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
