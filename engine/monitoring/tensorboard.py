"""Writes scalars to TensorBoard event files, without importing torch. Names follow CleanRL (`charts/…`, `losses/…`).

The x-axis of all scalars is environment steps. Small games finish hundreds of episodes per second, so one point per
episode would fill the disk: as a run goes on, each point is the mean of more and more episodes.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import _AsyncWriter
from tensorboard.summary.writer.record_writer import RecordWriter

from engine.protocol.messages import Episode, Evaluation, Progress
from engine.protocol.outcome import Outcome, mean_keys
from engine.runtime.files import new_file

EPISODE_POINTS = 4096
"""Number of points after which the number of episodes per point, initially 1, doubles. Charts in the dashboard show no
more points than that."""
_QUEUE = 2**16
"""Points that may wait for the disk. The host, which adds them, must not wait while the disk does not answer."""
_FLUSH_S = 5.0
_CLOSE_S = 10.0
_REOPEN_EVERY_S = 60.0


class _WritesAtOnce(io.BufferedWriter):
    """Whoever watches the file sees each record as soon as it is written."""

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        self.flush()
        return count


def _event_file(folder: Path) -> Any:
    """A new event file, to which a thread writes the bytes of events. It stays open: TensorBoard's own writer opens it
    by its name again for each record, and would write through a link that has taken the name.

    Readers sort files by name, so it begins with the time; with fractions, because a run may restart within a second.
    """
    name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
    writer = _AsyncWriter(RecordWriter(_WritesAtOnce(new_file(folder / name).detach())), _QUEUE, _FLUSH_S)
    writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
    writer.flush()
    return writer


class ScalarWriter:
    """Writes one event file in the run's folder, in a separate thread. `outcome`: of the game.

    If the file can't be written (the disk may be full), `complain` is called once with a message and later scalars are
    dropped until `reopen`: the file may end in a partial record, beyond which no reader continues.
    """

    def __init__(self, folder: Path, outcome: Outcome, complain: Callable[[str], None]) -> None:
        self._outcome, self._complain = outcome, complain
        self._writer: Any = None
        self._sums: dict[str, float] = {}  # over the episodes of the next point
        self._summed = self._summed_to = 0  # number of those episodes; environment steps at the last one
        self._each, self._points = 1, 0  # episodes per point; points written with that many
        self._folder, self._reopened_at = folder, -math.inf
        try:
            self._writer = _event_file(self._folder)
        except OSError as error:
            self._disable(error)

    def restart(self, env_steps: int) -> None:
        """The run goes on from a checkpoint at `env_steps`: have readers drop what was written for later steps."""
        self._sums, self._summed = {}, 0
        log = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=env_steps + 1, session_log=log))

    def reopen(self) -> bool:
        """Start another file if the last one could not be written, but not more often than every `_REOPEN_EVERY_S`
        seconds. Returns whether scalars are written again."""
        now = time.monotonic()
        if self._writer is not None or now - self._reopened_at < _REOPEN_EVERY_S:
            return False
        self._reopened_at = now
        with contextlib.suppress(OSError):
            self._writer = _event_file(self._folder)
        return self._writer is not None

    def progress(self, p: Progress) -> None:
        self._add(
            p.env_steps,
            {
                "losses/td_loss": p.loss,
                "losses/q_values": p.q_mean,
                "charts/learning_rate": p.learning_rate,
                "charts/epsilon": p.epsilon,
                "charts/random_share": math.nan if p.random_share is None else p.random_share,
                "charts/mean_return": p.mean_return,
                "charts/env_steps_per_s": p.env_steps_per_s,
                "charts/frames_per_s": p.frames_per_s,
                "charts/updates_per_s": p.updates_per_s,
                "replay/size": p.replay_size,
                "replay/beta": p.beta,
            },
        )

    def episode(self, e: Episode) -> None:
        """Add an episode. The first `EPISODE_POINTS` points are single episodes, the next means of 2, then of 4, …"""
        scalars = {
            "charts/episodic_return": e.episode_return,
            "charts/episodic_length": e.length,
            **{f"charts/episodic_{name}": value for name, value in self._outcome.named(e.results).items()},
        }
        if self._outcome.goal is not None:
            scalars["charts/episodic_clear"] = float(e.success)
        self._sums = {tag: self._sums.get(tag, 0.0) + value for tag, value in scalars.items()}
        self._summed, self._summed_to = self._summed + 1, e.env_steps
        if self._summed < self._each:
            return
        self._write_episodes()
        self._points += 1
        if self._points == EPISODE_POINTS:
            self._points, self._each = 0, 2 * self._each

    def evaluation(self, e: Evaluation) -> None:
        scalars = {
            f"eval/{key}": value
            for key, value in mean_keys({"return": e.mean_return, **self._outcome.named(e.results)}).items()
        }
        if self._outcome.goal is not None:
            scalars["eval/clear_rate"] = e.clears / e.episodes
        self._add(e.env_steps, scalars)

    def close(self) -> None:
        """Write what is left, but don't wait longer than `_CLOSE_S` for the disk."""
        self._write_episodes()
        if self._writer is not None:
            closing = threading.Thread(target=self._close, args=(self._writer,), daemon=True, name="tensorboard")
            closing.start()
            closing.join(_CLOSE_S)

    @staticmethod
    def _close(writer: Any) -> None:
        with contextlib.suppress(OSError):
            writer.close()

    def _write_episodes(self) -> None:
        """Write a point with the means of the episodes since the last one."""
        if self._summed:
            self._add(self._summed_to, {tag: total / self._summed for tag, total in self._sums.items()})
            self._sums, self._summed = {}, 0

    def _add(self, step: int, scalars: dict[str, float]) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items() if math.isfinite(value)]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(event.SerializeToString())
        except OSError as error:
            self._disable(error)

    def _disable(self, error: OSError) -> None:
        self._writer, self._reopened_at = None, time.monotonic()
        reason = error.strerror or error
        self._complain(f"no more scalars are written for TensorBoard: its event file can't be written ({reason})")
