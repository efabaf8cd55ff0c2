"""The one follower of a run: its host's messages while one is connected, its recording and its record otherwise.

Threads read and fold; the app takes a snapshot at each tick.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from engine.errors import UserError
from engine.host.client import HostClient, HostGone, HostProcess, InvalidMessage, attach
from engine.host.run_state import RunState
from engine.protocol.commands import Command
from engine.protocol.machine import System
from engine.protocol.messages import (
    Curriculum,
    Episode,
    Event,
    Failed,
    Finished,
    Frame,
    Hello,
    KeptEvent,
    Lanes,
    Members,
    Point,
    Progress,
    Ready,
    TimeSplits,
)
from engine.protocol.outcome import Outcome
from engine.runs.recording import read_recording
from engine.runs.run import Run, RunRecord, end_state
from mario_tui.data.exit_status import failure
from mario_tui.data.run_status import RunStatus

LOOK_S = 2.0
"""Seconds between two looks at the record of a run without a connected host, and between two tries to connect."""
_READERS = threading.BoundedSemaphore(2)
"""Recordings that are read at the same time. Reading needs the interpreter's lock, for which the screen would have to
wait behind every reader."""


@dataclass(frozen=True)
class Snapshot:
    """Immutable state of a run at one instant."""

    hello: Hello | None = None
    ready: Ready | None = None
    progress: Progress | None = None
    lanes: Lanes | None = None
    members: Members | None = None
    time_splits: TimeSplits | None = None
    curriculum: Curriculum | None = None
    system: System | None = None
    points: tuple[Point, ...] = ()
    events: tuple[KeptEvent, ...] = ()
    """The newest episodes and all other events, in order."""
    episodes: tuple[KeptEvent, ...] = ()
    others: tuple[KeptEvent, ...] = ()
    """Evaluations, checkpoints, log lines, the first clear ...; the same object until something is added."""
    end: Finished | Failed | None = None
    followed: bool = False
    """Whether a host told all this; otherwise a recording did."""
    connected: bool = False
    silent_s: int = 0
    """Seconds for which the host has not been heard from; 0 as long as they are few."""
    problem: str = ""
    """Why neither a host nor a recording could be read, or why the connection was given up; until a host answers."""
    recorded: tuple[RunStatus, str] = (RunStatus.CONNECTING, "")
    """State and reason without a host's word, from the record."""

    @property
    def outcome(self) -> Outcome:
        """What the episodes of the run's game yield."""
        return Outcome() if self.hello is None else self.hello.outcome

    @property
    def status(self) -> RunStatus:
        """The run's state: what its host tells or has told of its end, else what the record tells."""
        if self.followed and isinstance(self.end, Failed):
            return RunStatus.FAILED
        if self.followed and isinstance(self.end, Finished) and self.hello is not None:
            return RunStatus(end_state(self.end.summary.env_steps, self.hello.steps, self.end.summary.reason))
        if not self.connected:
            return self.recorded[0]
        if self.silent_s:
            return RunStatus.SILENT
        if self.progress is None:
            return RunStatus.STARTING
        status = RunStatus(self.progress.state)
        return RunStatus.STOPPING if status.is_over else status  # how it ended comes with the end itself

    @property
    def reason(self) -> str:
        """Why the run is in that state; empty if there is nothing to tell."""
        if self.end is None or not self.followed:
            return "" if self.connected else self.recorded[1]
        return self.end.reason if isinstance(self.end, Failed) else self.end.summary.reason

    @property
    def live(self) -> bool:
        """Whether a host is connected, so that the data is current and commands can be sent."""
        return self.connected and self.end is None

    @property
    def running(self) -> bool:
        """Whether the run is running, so that its rates are current."""
        return self.live and self.status is RunStatus.RUNNING


def read_record(run: Run) -> RunRecord | UserError:
    """The run's record, or why there is none."""
    try:
        return run.record()
    except UserError as error:
        return error


def _recording(run: Run) -> list[Event]:
    """The run's recording, as far as the record does not know better: if the host was killed, the record is newer, and
    if that was soon after a resume, the recorded end is an earlier one. Raises `UserError`."""
    record = run.record()
    other = {"finished": Failed, "failed": Finished}.get(record.state, Finished | Failed)

    def corrected(event: Event) -> Event:
        if isinstance(event, Hello):
            return msgspec.structs.replace(event, events=[past for past in event.events if not isinstance(past, other)])
        if isinstance(event, Progress) and event.env_steps < record.env_steps:
            mean_return = event.mean_return if record.mean_return is None else record.mean_return
            return msgspec.structs.replace(
                event, env_steps=record.env_steps, episodes=record.episodes, wall_s=record.wall_s,
                mean_return=mean_return,
            )  # fmt: skip
        return event

    return [corrected(event) for event in read_recording(run.history_path)]


class Feed:
    """Follows a run: through `host` if this process has just started it, else by attaching, else from its recording.

    Threads connect and read; they are daemons, so they do not delay the exit.
    """

    def __init__(self, run: Run, host: HostProcess | None = None) -> None:
        self.run = run
        self._host = host
        self._lock = threading.Lock()
        self._closed = False
        self._tried_at = 0.0
        self._problem = ""
        self._recorded = (RunStatus.CONNECTING, "")
        self._pid: int | None = None
        """Process ID of the host that the newest record names; None if none is alive."""
        self._snapshot = Snapshot()
        self._begin()

    def _begin(self) -> None:
        """Forget what an earlier attempt to connect has brought."""
        self._view = RunState()
        """What this attempt has brought: threads of earlier ones have another."""
        self._client: HostClient | None = None
        self._followed: int | None = None
        """Process ID of the host that was connected; None if none was."""
        self._has_failed = False
        self._read_at: int | None = None
        """When the recording of a run on another machine, which grows, was last written; None for other runs."""
        self._changed = True
        self._seen: tuple[object, ...] = (None, None, None)

    def connect(self) -> None:
        """Connect to the host, or read the recording if there is none.

        Returns at once: a host may take seconds to answer, and a suspended one never does.
        """
        self._tried_at = time.monotonic()
        threading.Thread(target=self._connect, args=(self._host, self._view), daemon=True, name="connect").start()

    def _connect(self, host: HostProcess | None, view: RunState) -> None:
        try:
            client = attach(self.run) if host is None else host.connect()
            if client is not None:
                self.follow(client, view)
            else:
                with _READERS:
                    self._take(_recording(self.run), view)
        except UserError as error:
            with self._lock:
                if view is not self._view:
                    return
                self._problem, self._has_failed, self._changed = str(error), True, True
            record = read_record(self.run)
            if isinstance(record, RunRecord) and record.elsewhere:
                self._read_elsewhere()

    def _read_elsewhere(self) -> None:
        """Take the recording as it is now in the place of what was known; if it can't be read, that stays."""
        with contextlib.suppress(OSError, UserError), _READERS:
            read_at, view = self.run.history_path.stat().st_mtime_ns, RunState()
            for event in _recording(self.run):
                view.apply(event)
            with self._lock:
                if self._client is None:
                    self._view, self._read_at, self._changed = view, read_at, True

    def _has_grown(self) -> bool:
        """Whether there is more in the recording of a run on another machine."""
        try:
            return self._read_at is not None and self._read_at != self.run.history_path.stat().st_mtime_ns
        except OSError:
            return False

    def follow(self, client: HostClient, view: RunState) -> None:
        """Read from a connection in a separate thread until it closes. One that comes too late is closed at once."""
        with self._lock:
            if self._closed or view is not self._view:
                client.close()
                return
            self._client, self._followed, self._problem = client, client.hello.pid, ""
        threading.Thread(target=self._read, args=(client, view), daemon=True, name="feed").start()

    def _read(self, client: HostClient, view: RunState) -> None:
        problem = ""
        try:
            for event in client.events():
                if isinstance(event, Frame):
                    view.frame = event  # up to 15 per second; nothing else has changed
                else:
                    self._take([event], view)
        except InvalidMessage as error:
            problem = str(error)
        with self._lock:
            if client is self._client:
                self._client, self._problem, self._changed = None, problem, True

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events, as if the host had sent them."""
        self._take(events, self._view)

    def _take(self, events: Iterable[Event], view: RunState) -> None:
        with self._lock:
            for event in events:
                view.apply(event)
            self._changed = True

    def update(self, record: RunRecord | UserError) -> bool:
        """Take the newest record, or why there is none; ignored while a host is connected.

        Returns whether it connects again: to another host that has the run now, or to one that did not answer before,
        or has dropped this client. If that one is gone, it reads the recording.
        """
        if self._client is not None:
            return False
        if isinstance(record, UserError):
            status, reason, pid = RunStatus.LOST, str(record), None
        else:
            status = RunStatus.of_record(record)
            reason = failure(record) if status is RunStatus.LOST else record.reason
            pid = record.pid if status.is_active else None
        again = self._has_news(pid) and time.monotonic() - self._tried_at >= LOOK_S
        self._pid = pid
        if again:
            with self._lock:
                self._host = None
                self._begin()
            self.connect()
        elif self._has_grown():
            threading.Thread(target=self._read_elsewhere, daemon=True, name="recording").start()
        if status is RunStatus.SILENT:
            pass  # the record tells more than a connection that does not come
        elif status.is_active and self._problem:
            status, reason = RunStatus.UNREACHABLE, self._problem
        elif status.is_active and status is not RunStatus.STARTING:
            status = RunStatus.CONNECTING  # the record claims what the host has not confirmed
        elif not status.is_active and self._host is not None and not self._host.ended:
            status = RunStatus.STARTING
        recorded = (status, reason or self._problem)
        if recorded != self._recorded:
            self._recorded, self._changed = recorded, True
        return again

    def _has_news(self, pid: int | None) -> bool:
        """Whether to connect again, as the record names the host `pid` now."""
        if self._view.hello is None:  # not yet, or it has failed
            return self._has_failed and (pid, self._pid) != (None, None)
        dropped = self._followed is not None and self._view.end is None
        return pid is not None and (dropped or pid != (self._pid if self._followed is None else self._followed))

    @property
    def was_live(self) -> bool:
        """Whether a host was started here, or connected, so that an end is news."""
        return self._followed is not None or self._host is not None

    def send(self, command: Command) -> bool:
        """Send a command; returns whether it could be sent."""
        client = self._client  # another thread may set it to None
        if client is None:
            return False
        try:
            client.send(command)
        except HostGone:
            return False
        return True

    def snapshot(self) -> Snapshot:
        """The newest snapshot; the same object as before if nothing changed."""
        with self._lock:
            if self._changed:
                self._changed = False
                view, before = self._view, self._snapshot
                seen = (
                    (view.points, view.points.changes),
                    (view.events, view.events.changes),
                    (view.events, view.events.added),
                )
                points_same, others_same, events_same = (a == b for a, b in zip(seen, self._seen, strict=True))
                self._seen = seen
                self._snapshot = Snapshot(
                    hello=view.hello,
                    ready=view.ready,
                    progress=view.progress,
                    lanes=view.lanes,
                    members=view.members,
                    time_splits=view.time_splits,
                    curriculum=view.curriculum,
                    system=view.system,
                    points=before.points if points_same else tuple(view.points.items),
                    events=before.events if events_same else tuple(view.events),
                    episodes=before.episodes if events_same else tuple(view.events.episodes()),
                    others=before.others if others_same else tuple(view.events.others()),
                    end=view.end,
                    followed=self._followed is not None,
                    connected=self._client is not None,
                    problem=self._problem,
                    recorded=self._recorded,
                )
            silence = 0 if self._client is None or self._view.end is not None else self._client.silent_s
            if silence != self._snapshot.silent_s:
                self._snapshot = replace(self._snapshot, silent_s=silence)
            return self._snapshot

    def frame(self) -> Frame | None:
        """The newest frame of the game."""
        return self._view.frame

    def episodes_of(self, actor: int, lane: int) -> list[Episode]:
        """The last episodes of a lane, oldest first."""
        with self._lock:
            return list(self._view.lane_episodes.get((actor, lane), ()))

    def close(self) -> None:
        """Close the connection; one that opens later is closed at once."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()
