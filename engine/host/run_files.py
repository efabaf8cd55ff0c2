"""What the host writes into the run's folder: the record that lists of runs read, and the recording of its events."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path

from engine.config.reported_loop import Description
from engine.errors import UserError
from engine.host import host_events
from engine.host.file_writer import FileWriter
from engine.host.run_state import Points, RunState
from engine.protocol.framing import pack
from engine.protocol.messages import Event, Failed, Finished, Hello, Progress
from engine.runs.recording import read_known
from engine.runs.run import Run, RunRecord, machine_name

_HISTORY_EVERY_S = 30.0


class RunFiles:
    """Writes in a thread, see `FileWriter`, and never into a folder that has replaced the run's."""

    record: RunRecord
    """What `write_record` writes; read by `begin`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._folder = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY)  # while it is open, its number is not used again
        self._files = FileWriter(lambda: not self.have_moved(), self._folder)
        self._history_at = time.monotonic()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` seconds. Returns whether that is so."""
        return self._files.flush(timeout_s)

    def begin(self, steps: int) -> None:
        """Read the record, which says from now on that this process is starting the run."""
        self.record = self._run.record()
        self.record.pid, self.record.state, self.record.reason = os.getpid(), "starting", ""
        self.record.host, self.record.steps = machine_name(), steps

    def have_moved(self) -> bool:
        """Whether the run's folder was moved or replaced since the start. Raises `OSError` if that is unknown."""
        try:
            return not os.path.samestat(os.fstat(self._folder), self._run.path.stat())
        except FileNotFoundError:
            return True

    @property
    def folder(self) -> Path:
        """For files that are written in pieces: the host works in it, so it stays the run's own folder when that is
        moved."""
        here = Path()
        return here if os.path.samestat(os.fstat(self._folder), here.stat()) else self._run.path

    @property
    def work(self) -> bool:
        """Whether the files could be written the last time."""
        return self._files.works

    def write_record(self, progress: Progress | None, checkpoint: str | None) -> None:
        """Write the record, with the figures of `progress` if there are new ones, and the path of the checkpoint."""
        record = self.record
        if progress is not None:
            record.state = progress.state
            record.env_steps, record.episodes = progress.env_steps, progress.episodes
            record.wall_s = progress.wall_s
            record.mean_return = progress.mean_return if math.isfinite(progress.mean_return) else None
        record.checkpoint = checkpoint
        self._files.write(self._run.record_path, record.encode())

    def want_history(self) -> None:
        """Let the recording be due at once: something has come that others wait for."""
        self._history_at = -math.inf

    @property
    def history_is_due(self) -> bool:
        return time.monotonic() - self._history_at > _HISTORY_EVERY_S

    def save_history(self, config: Description, state: RunState) -> None:
        """Write the recording that dashboards show after the host has exited."""
        self._history_at = time.monotonic()
        events = host_events.hello(self._run, config, state), *host_events.current(state)
        self._files.write(self._run.history_path, b"".join(pack(event) for event in events))

    def restore_history(self, state: RunState, env_steps: int) -> str:
        """On resume: restore charts and log of earlier sessions, up to the checkpoint at `env_steps`.

        If not all of it can be read, the recording is kept beside the new one. Returns a line about that, else "".
        """
        path = self._run.history_path
        if not path.exists():
            return ""
        problem, events = "", list[Event]()
        try:
            events, unknown = read_known(path)
            if unknown:
                problem = "the recording of another version could not be read whole"
        except UserError as error:
            problem = f"{error}; charts and log begin anew"
        if problem:
            kept = path.with_suffix(".old")
            with contextlib.suppress(OSError):
                path.replace(kept)
                problem += f"; it is kept in {kept.name}"
        for event in events:
            if isinstance(event, Hello):
                points = (point for point in event.points if point.env_steps <= env_steps)
                state.points = Points(points, event.points_stride)
                for past in event.events:
                    if not isinstance(past, Finished | Failed) and getattr(past, "env_steps", 0) <= env_steps:
                        state.apply(past)
            elif isinstance(event, Progress):
                state.apply(host_events.back_at(event, env_steps))
        return problem
