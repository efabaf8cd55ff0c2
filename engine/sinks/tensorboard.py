"""Writes scalars and hyperparameters to TensorBoard event files, without importing torch. Names follow CleanRL
(`charts/…`, `losses/…`).

The x-axis of all scalars is environment steps. As a run goes on, each point of its episodes is the mean of more and
more of them (`engine.sinks.thinning`).
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from engine.protocol.messages import Episode, Evaluation, Failed, Finished, Progress
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.sinks import Begin
from engine.runtime.files import new_file
from engine.sinks import hparams
from engine.sinks.queued_writer import QueuedSink, QueuedWriter
from engine.sinks.thinning import Thinning

_CLOSE_S = 10.0


def compared(outcome: Outcome) -> list[str]:
    """The scalars by which TensorBoard's table of hyperparameters compares runs of a game with this outcome."""
    means = [f"eval/mean_{name}" for name in ("return", *(result.name for result in outcome.results))]
    return [*means, *(["eval/clear_rate"] if outcome.goal is not None else []), "charts/mean_return"]


class TensorBoard(QueuedSink):
    """Writes one event file in the run's folder, and another one each time it begins.

    The file stays open: TensorBoard's own writer opens it by its name again for each record, and would write through a
    link that has taken the name. If it can't be written (the disk may be full), nothing more is: it may end in a
    partial record, beyond which no reader continues.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thinning, self._outcome = Thinning(), Outcome()
        self._sums: dict[str, float] = {}  # over the episodes of the next point
        self._summed = self._summed_to = 0  # number of those episodes; environment steps at the last one

    def begin(self, run: Begin) -> None:
        self._writer, self._outcome = None, run.outcome
        # Readers sort files by name, so it begins with the time; with fractions, because a run may restart within a
        # second.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
        self._writer = QueuedWriter(RecordWriter(new_file(self._folder / name)), "tensorboard")
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._summarize(0, hparams.experiment(run.options, compared(run.outcome)), hparams.session_start(run))

    def restart(self, env_steps: int) -> None:
        self._sums, self._summed = {}, 0
        self._thinning.restart()
        log = SessionLog(status=SessionLog.START)  # has readers drop what was written for later steps
        self._write(Event(wall_time=time.time(), step=env_steps + 1, session_log=log))

    def progress(self, progress: Progress) -> None:
        p = progress
        self._add(
            p.env_steps,
            {
                "losses/td_loss": p.loss,
                "losses/q_values": p.q_mean,
                "charts/learning_rate": p.learning_rate,
                "charts/epsilon": p.epsilon,
                "charts/random_share": p.random_share,
                "charts/mean_return": p.mean_return,
                "charts/env_steps_per_s": p.env_steps_per_s,
                "charts/frames_per_s": p.frames_per_s,
                "charts/updates_per_s": p.updates_per_s,
                "replay/size": p.replay_size if p.replay_capacity else math.nan,  # some loops have none
                "replay/beta": p.beta,
            },
        )

    def episode(self, episode: Episode) -> None:
        results = self._outcome.named(episode.results)
        scalars = {f"charts/episodic_{name}": value for name, value in results.items()}
        scalars |= {"charts/episodic_return": episode.episode_return, "charts/episodic_length": episode.length}
        if self._outcome.goal is not None:
            scalars["charts/episodic_clear"] = float(episode.success)
        self._sums = {tag: self._sums.get(tag, 0.0) + value for tag, value in scalars.items()}
        self._summed, self._summed_to = self._summed + 1, episode.env_steps
        if self._thinning.is_due():
            self._write_episodes()

    def evaluation(self, evaluation: Evaluation) -> None:
        means = {"return": evaluation.mean_return, **self._outcome.named(evaluation.results)}
        scalars = {f"eval/{key}": value for key, value in mean_keys(means).items()}
        if self._outcome.goal is not None:
            scalars["eval/clear_rate"] = evaluation.clears / evaluation.episodes
        self._add(evaluation.env_steps, scalars)

    def end(self, end: Finished | Failed) -> None:
        self._summarize(0, hparams.session_end(in_order=isinstance(end, Finished)))

    def close(self) -> None:
        """Write what is left, but don't wait longer than `_CLOSE_S` for the disk."""
        self._write_episodes()
        if self._writer is not None:
            self._writer.close(_CLOSE_S)

    def _write_episodes(self) -> None:
        """Write a point with the means of the episodes since the last one."""
        if self._summed:
            means = {tag: total / self._summed for tag, total in self._sums.items()}
            self._sums, self._summed = {}, 0
            self._add(self._summed_to, means)

    def _add(self, step: int, scalars: dict[str, float]) -> None:
        found = {tag: value for tag, value in scalars.items() if math.isfinite(value)}
        self._summarize(step, *(Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()))

    def _summarize(self, step: int, *values: Summary.Value) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.put(event.SerializeToString())
