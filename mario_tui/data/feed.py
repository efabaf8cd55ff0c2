"""The one follower of a run: its host's messages while one is connected, its recording and its record otherwise.

Threads read and fold; the app takes a snapshot at each tick.
"""

from __future__ import annotations

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
    Lanes,
    Members,
    Noted,
    Point,
    Progress,
    Ready,
    TimeSplits,
)
from engine.protocol.outcome import Outcome
from engine.runs.recording import read_recording
from engine.runs.run import Run, RunRecord
from mario_tui.data.standing import Standing

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
    events: tuple[Noted, ...] = ()
    """The newest episodes and all other events, in order."""
    episodes: tuple[Noted, ...] = ()
    others: tuple[Noted, ...] = ()
    """Evaluations, checkpoints, log lines, the first clear ...; the same object until something is added."""
    end: Finished | Failed | None = None
    followed: bool = False
    """Whether a host has told all this, not a recording."""
    connected: bool = False
    silent_s: int = 0
    """Seconds for which the host has not been heard from; 0 as long as they are few."""
    problem: str = ""
    """Why neither a host nor a recording could be read, or why the connection was given up; until a host answers."""
    recorded: tuple[Standing, str] = (Standing.CONNECTING, "")
    """State and reason without a host's word, from the record."""

    @property
    def outcome(self) -> Outcome:
        """What the episodes of the run's game yield."""
        return Outcome() if self.hello is None else self.hello.outcome

    @property
    def standing(self) -> Standing:
        """The run's state: what its host tells or has told of its end, else what the record tells."""
        if self.followed and isinstance(self.end, Failed):
            return Standing.FAILED
        if self.followed and isinstance(self.end, Finished) and self.hello is not None:
            return Standing.of_end(self.end.summary.env_steps, self.hello.steps, self.end.summary.reason)
        if not self.connected:
            return self.recorded[0]
        if self.silent_s:
            return Standing.SILENT
        return Standing.STARTING if self.progress is None else Standing(self.progress.state)

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
        return self.live and self.standing is Standing.RUNNING


class Feed:
    """Follows a run: through `host` if this process has just started it, else by attaching, else from its recording."""

    def __init__(self, run: Run, host: HostProcess | None = None) -> None:
        self.run = run
        self._host = host
        self._source = _Source()
        self._snapshot = self._seen = Snapshot()
        """With the record's word, and without it."""
        self._pid: int | None = None
        """Process ID of the host that the newest record names; None if none is alive."""
        self._tried_at = 0.0

    def connect(self) -> None:
        """Connect to the host, or read the recording if there is none.

        Returns at once: a host may take seconds to answer, and a suspended one never does.
        """
        self._tried_at = time.monotonic()
        self._source.connect(self.run, self._host)

    def update(self, record: RunRecord | UserError) -> bool:
        """Take the newest record, or why there is none; ignored while a host is connected.

        Returns whether it connects again: to another host that has the run now, or to one that did not answer before,
        or has dropped this client. If that one is gone, it reads the recording.
        """
        if self.snapshot().connected:
            return False
        if isinstance(record, UserError):
            standing, reason = Standing.LOST, str(record)
        else:
            standing, reason = Standing.of_record(record), record.reason
        pid = record.pid if isinstance(record, RunRecord) and standing.is_active else None
        again = self._has_news(pid) and time.monotonic() - self._tried_at >= LOOK_S
        self._pid = pid
        if again:
            self._source.close()
            self._source, self._host = _Source(), None
            self.connect()
        problem = self._snapshot.problem
        if standing is Standing.SILENT:
            pass  # the record tells more than a connection that does not come
        elif standing.is_active and problem:
            standing, reason = Standing.UNREACHABLE, problem
        elif standing.is_active and standing is not Standing.STARTING:
            standing = Standing.CONNECTING  # the record claims what the host has not confirmed
        elif not standing.is_active and self._host is not None and not self._host.ended:
            standing = Standing.STARTING
        recorded = (standing, reason or problem)
        if recorded != self._snapshot.recorded:
            self._snapshot = replace(self._snapshot, recorded=recorded)
        return again

    def _has_news(self, pid: int | None) -> bool:
        """Whether to connect again, as the record names the host `pid` now."""
        seen = self._seen
        if seen.hello is None:  # not yet, or it has failed
            return bool(seen.problem) and (pid, self._pid) != (None, None)
        followed = self._source.pid
        dropped = followed is not None and seen.end is None
        return pid is not None and (dropped or pid != (self._pid if followed is None else followed))

    @property
    def was_live(self) -> bool:
        """Whether a host was started here, or connected, so that an end is news."""
        return self._source.pid is not None or self._host is not None

    def snapshot(self) -> Snapshot:
        """The newest snapshot; the same object as before if nothing changed."""
        seen = self._source.snapshot()
        if seen is not self._seen:
            self._seen = seen
            problem = seen.problem or ("" if seen.connected else self._snapshot.problem)
            self._snapshot = replace(seen, problem=problem, recorded=self._snapshot.recorded)
        return self._snapshot

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events as if the host had sent them."""
        self._source.apply(events)

    def send(self, command: Command) -> bool:
        """Send a command; returns whether it could be sent."""
        return self._source.send(command)

    def frame(self) -> Frame | None:
        """The newest frame of the game."""
        return self._source.frame()

    def episodes_of(self, actor: int, lane: int) -> list[Episode]:
        """The last episodes of a lane, oldest first."""
        return self._source.episodes_of(actor, lane)

    def close(self) -> None:
        """Close the connection."""
        self._source.close()


def read_record(run: Run) -> RunRecord | UserError:
    """The run's record, or why there is none."""
    try:
        return run.record()
    except UserError as error:
        return error


def _recording(run: Run) -> list[Event]:
    """The run's recording. Without its end if the record knows of another: the run was resumed, and its host killed
    before it recorded anything. Raises `UserError`."""
    other = {"finished": Failed, "failed": Finished}.get(run.record().state, Finished | Failed)
    return [
        msgspec.structs.replace(event, events=[past for past in event.events if not isinstance(past, other)])
        if isinstance(event, Hello)
        else event
        for event in read_recording(run.history_path)
    ]


class _Source:
    """The newest state of a run, from one connection or from the recording. The threads that wait are daemons, so they
    do not delay the exit."""

    def __init__(self) -> None:
        self._view = RunState()
        self._lock = threading.Lock()
        self._client: HostClient | None = None
        self._pid: int | None = None
        self._closed = False
        self._problem = ""
        self._changed = True
        self._snapshot = Snapshot()
        self._seen: tuple[object, ...] = (None, None, None)

    @property
    def pid(self) -> int | None:
        """Process ID of the host that was connected; None if none was."""
        return self._pid

    def connect(self, run: Run, host: HostProcess | None) -> None:
        threading.Thread(target=self._connect, args=(run, host), daemon=True, name="connect").start()

    def _connect(self, run: Run, host: HostProcess | None) -> None:
        try:
            client = attach(run) if host is None else host.connect()
            if client is not None:
                self.follow(client)
            else:
                with _READERS:
                    self.apply(_recording(run))
        except UserError as error:
            with self._lock:
                self._problem = str(error)
                self._changed = True

    def follow(self, client: HostClient) -> None:
        """Read from a connection in a separate thread until it closes."""
        with self._lock:
            if self._closed:
                client.close()
                return
            self._client, self._pid = client, client.pid
        threading.Thread(target=self._read, args=(client,), daemon=True, name="feed").start()

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events."""
        with self._lock:
            for event in events:
                self._view.apply(event)
            self._changed = True

    def send(self, command: Command) -> bool:
        if self._client is None:
            return False
        try:
            self._client.send(command)
        except HostGone:
            return False
        return True

    def snapshot(self) -> Snapshot:
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
                    followed=self._pid is not None,
                    connected=self._client is not None,
                    problem=self._problem,
                )
            silence = 0 if self._client is None or self._view.end is not None else self._client.silent_s
            if silence != self._snapshot.silent_s:
                self._snapshot = replace(self._snapshot, silent_s=silence)
            return self._snapshot

    def frame(self) -> Frame | None:
        return self._view.frame

    def episodes_of(self, actor: int, lane: int) -> list[Episode]:
        with self._lock:
            return list(self._view.lane_episodes.get((actor, lane), ()))

    def close(self) -> None:
        """Close the connection; one that opens later is closed at once."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()

    def _read(self, client: HostClient) -> None:
        problem = ""
        try:
            for event in client.events():
                if isinstance(event, Frame):
                    self._view.frame = event  # up to 15 per second; nothing else has changed
                else:
                    self.apply([event])
        except InvalidMessage as error:
            problem = str(error)
        with self._lock:
            self._client, self._problem, self._changed = None, problem, True
