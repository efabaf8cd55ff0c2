"""Events from a host to the screen: a reader thread folds them, and the app takes a snapshot at each tick."""

from __future__ import annotations

import threading
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
from engine.runs.run import SILENCE_S, Run
from mario_tui.data.standing import Standing, end_state

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
    connected: bool = False
    silent_s: int = 0
    """Seconds for which the host has not been heard from, from `SILENCE_S` on."""
    problem: str = ""
    """Why neither a host nor a recording could be read, or why the connection was given up."""

    @property
    def outcome(self) -> Outcome:
        """What the episodes of the run's game yield."""
        return Outcome() if self.hello is None else self.hello.outcome

    @property
    def standing(self) -> Standing | None:
        """The run's state as its host told it; None if there is no host and none has told of an end."""
        if isinstance(self.end, Failed):
            return "failed"
        if isinstance(self.end, Finished) and self.hello is not None:
            return end_state(self.end.summary.env_steps, self.hello.steps, self.end.summary.reason)
        if self.connected:
            if self.silent_s:
                return "silent"
            return "starting" if self.progress is None else self.progress.state
        return None

    @property
    def live(self) -> bool:
        """Whether a host is connected, so that the data is current and commands can be sent."""
        return self.connected and self.end is None

    @property
    def running(self) -> bool:
        """Whether the run is running, so that its rates are current."""
        return self.live and not self.silent_s and self.progress is not None and self.progress.state == "running"


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


class Feed:
    """The newest state of a run, from a live connection or from a recording."""

    def __init__(self) -> None:
        self._view = RunState()
        self._lock = threading.Lock()
        self._client: HostClient | None = None
        self._closed = False
        self._problem = ""
        self._changed = True
        self._snapshot = Snapshot()
        self._seen: tuple[object, ...] = (None, None, None)

    def connect(self, run: Run, host: HostProcess | None = None) -> None:
        """Follow a run through `host`, if this process has just started it, else by attaching; replay its recording if
        it has no host.

        Returns at once: a host may take seconds to answer, and a suspended one never does. The waiting thread is a
        daemon, so it does not delay the exit.
        """
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
            self._client = client
        self.apply([client.hello])
        threading.Thread(target=self._read, args=(client,), daemon=True, name="feed").start()

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events."""
        with self._lock:
            for event in events:
                self._view.apply(event)
            self._changed = True

    def send(self, command: Command) -> bool:
        """Send a command; returns whether it could be sent."""
        if self._client is None:
            return False
        try:
            self._client.send(command)
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
                    connected=self._client is not None,
                    problem=self._problem,
                )
            silent_s = 0.0 if self._client is None or self._view.end is not None else self._client.silent_s
            silence = int(silent_s) if silent_s >= SILENCE_S else 0
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

    def _read(self, client: HostClient) -> None:
        try:
            while True:
                event = client.receive()
                if isinstance(event, Frame):
                    self._view.frame = event  # up to 15 per second; nothing else has changed
                else:
                    self.apply([event])
        except HostGone as error:
            with self._lock:
                self._client = None
                self._problem = str(error) if isinstance(error, InvalidMessage) else ""
                self._changed = True
