"""What the host writes into the run's folder: the record that lists of runs read, the recording of its events, the log,
whose size it bounds, and checkpoints, which it commits.

A disk that takes seconds must stop neither reports nor clients: small files are written, and the log is emptied, in a
thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import shutil
import socket
import threading
import time
from pathlib import Path

from engine.config.reading import Description
from engine.errors import UserError
from engine.host import host_events
from engine.host.run_state import Points, RunState
from engine.protocol.framing import pack
from engine.protocol.messages import Event, Failed, Finished, Hello, Progress, Written
from engine.runs import checkpoints
from engine.runs.marks import RECORD_FILE
from engine.runs.recording import read_known
from engine.runs.run import LOG_FILE, HeldRun, Run, RunRecord
from engine.runtime.files import open_regular, replacing, write_atomically

log = logging.getLogger("host")


class FileWriter:
    """Replaces files atomically. Content that still waits gives way to newer content of the same file.

    A file that can't be written is reported once, until it can be.

    Args:
        folder: see `engine.runtime.files.replacing`.
    """

    def __init__(self, folder: int | None = None) -> None:
        self._folder = folder
        self._failed: set[Path] = set()
        self._waiting: dict[Path, bytes] = {}
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._work, daemon=True, name="files").start()  # a disk that hangs won't delay the exit

    def write(self, path: Path, content: bytes) -> None:
        """Have `content` written to `path`. If that fails, the log says so."""
        with self._changed:
            self._waiting[path] = content
            self._changed.notify_all()

    @property
    def works(self) -> bool:
        """Return whether every file could be written the last time."""
        return not self._failed

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be written, at most `timeout_s` seconds. Returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_writing, timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                path = next(iter(self._waiting))
                content = self._waiting.pop(path)
                self._is_writing = True
            try:
                write_atomically(path, content, self._folder)
            except Exception as error:  # whatever it is, this thread has to go on
                if path not in self._failed:
                    log.warning("%s could not be written: %s", path.name, error)
                self._failed.add(path)
            else:
                self._failed.discard(path)
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()


MOST_BYTES = 2**23
"""Size from which on the log is emptied, and of what is kept of it."""
_STDERR = 2


class LogRotation:
    """`look` is called every second, and returns at once: a disk may take seconds to write the copy."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def look(self, folder: Path) -> None:
        """Empty the log in the run's folder if it has grown too large. Raises `OSError` if that has failed before."""
        if self._thread is not None and self._thread.is_alive():
            return
        error, self._error, self._thread = self._error, None, None
        if os.fstat(_STDERR).st_size > MOST_BYTES:
            self._thread = threading.Thread(target=self._rotate, args=(folder,), daemon=True, name="log")
            self._thread.start()
        if error is not None:
            raise error

    def _rotate(self, folder: Path) -> None:
        try:
            rotate(folder, _STDERR)
        except OSError as error:
            self._error = error


def rotate(folder: Path, writes_to: int) -> None:
    """Move the newest lines of the log in a folder to `run.log.1`, if the descriptor `writes_to` is that of the log."""
    with open_regular(folder / LOG_FILE, os.O_RDWR) as log:
        status = os.fstat(log.fileno())
        if not os.path.samestat(status, os.fstat(writes_to)):
            return
        with replacing(folder / f"{LOG_FILE}.1", mode=0o644) as kept:
            log.seek(max(0, status.st_size - MOST_BYTES))
            shutil.copyfileobj(log, kept)
            kept.flush()
            os.fsync(kept.fileno())
            shutil.copyfileobj(log, kept)  # what was printed meanwhile
            os.ftruncate(log.fileno(), 0)


_ATTEMPTS, _RETRY_S = 3, 1.0


class CheckpointKeeper:
    """`start`: the checkpoint from which the run starts, perhaps of another run; `keep`: how many are kept."""

    def __init__(self, run: Run, keep: int, start: Path | None) -> None:
        self._run, self._keep = run, keep
        self.newest = start
        self._damaged = set[Path]()
        self.env_steps = -1
        """Environment steps of the run at the newest checkpoint; -1 while unknown."""

    @property
    def newest_path(self) -> str | None:
        return None if self.newest is None else str(self.newest)

    def read_env_steps(self) -> int:
        """`env_steps`, as the newest checkpoint says it. Raises `UserError` if that can't be read."""
        if self.newest is not None:
            self.env_steps = checkpoints.read_manifest(self.newest).env_steps
        return self.env_steps

    def recover(self) -> list[tuple[str, str]]:
        """Commit checkpoints that were written completely before a crash. Returns log lines (level, text), also of
        damaged ones. Any checkpoint of this run is newer than another run's, from which it may have started."""
        notes = []
        start = self.newest
        for path in checkpoints.recover(self._run):
            notes.append(("info", f"{path.name} was written before a crash; it is committed now"))
            if start is None or start.parent != path.parent or path > start:
                start = path
                self.env_steps = checkpoints.read_manifest(path).env_steps
        self.newest = start
        for path in checkpoints.folders(self._run):
            if start is not None and start.parent == path.parent and path > start:
                try:
                    checkpoints.verify(path)
                except UserError as error:
                    self._damaged.add(path)
                    notes.append(("warning", f"skipping a newer checkpoint: {error}"))
        return notes

    def follow(self, before: Path) -> None:
        """Find the checkpoints where the run's folder is now, which was at `before`."""

        def now(path: Path) -> Path:
            return self._run.path / path.name if path.parent == before else path

        self.newest = None if self.newest is None else now(self.newest)
        self._damaged = {*map(now, self._damaged)}

    async def commit(self, written: Written) -> OSError | UserError | None:
        """Check and rename a checkpoint, and remove old ones. Returns the error if it could not be committed."""
        partial, final = Path(written.partial).name, Path(written.final).name
        for tries_left in range(_ATTEMPTS - 1, -1, -1):
            try:
                folder = self._run.look()
                await asyncio.to_thread(checkpoints.commit, folder / partial, folder / final)
                break
            except (OSError, UserError) as error:
                if not tries_left:
                    return error
                await asyncio.sleep(_RETRY_S)  # free file descriptors may be back in a moment
        self.newest, self.env_steps = self._run.path / final, written.env_steps
        self._damaged.discard(self.newest)
        with contextlib.suppress(OSError, UserError):  # the next one removes them
            self._run.look()
            await asyncio.to_thread(checkpoints.rotate, self._run, self._keep, self._damaged)
        return None


_RECORD_EVERY_S, _HISTORY_EVERY_S = 5.0, 30.0
"""Not more often than needed: each time waits for the disk."""
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


class RunFiles:
    """Writes in a thread, see `FileWriter`, into the run's own folder, wherever it is."""

    record: RunRecord
    """What `write_record` writes; read by `begin`."""

    def __init__(self, run: HeldRun) -> None:
        self._run = run
        self._files = FileWriter(run.folder.descriptor)
        self._record_at = self._history_at = time.monotonic()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` seconds. Returns whether that is so."""
        return self._files.flush(timeout_s)

    def begin(self, steps: int) -> None:
        """Read the record, which says from now on that this process is starting the run."""
        self.record = self._run.record()
        self.record.pid, self.record.state, self.record.reason = os.getpid(), "starting", ""
        self.record.host, self.record.steps, self.record.result = socket.gethostname(), steps, None
        self.record.alerts, self.record.alert, self.record.alert_at = 0, "", 0.0

    def overwrite_record(self) -> None:
        """Write the last record on a full disk: over the one before, whose blocks it has. After a crash it is damaged.
        Raises `OSError`."""
        content = self.record.encode()
        with open_regular(self._run.folder.way_in / RECORD_FILE, os.O_RDWR) as file:
            if len(content) > _BLOCK_BYTES * os.fstat(file.fileno()).st_blocks:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.write(content)
            file.truncate()

    @property
    def work(self) -> bool:
        """Return whether the files could be written the last time."""
        return self._files.works

    def write_record(self, progress: Progress | None, checkpoint: str | None) -> None:
        """Write the record, with the figures of `progress` if there are new ones, and the path of the checkpoint."""
        record, self._record_at = self.record, time.monotonic()
        if progress is not None:
            record.state = progress.state
            record.env_steps, record.episodes = progress.env_steps, progress.episodes
            record.wall_s = progress.wall_s
            record.mean_return = progress.mean_return if math.isfinite(progress.mean_return) else None
        record.name, record.checkpoint = self._run.name, checkpoint
        self._files.write(self._run.record_path, record.encode())

    @property
    def record_is_due(self) -> bool:
        return time.monotonic() - self._record_at >= _RECORD_EVERY_S

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
