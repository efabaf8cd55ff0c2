"""The one follower of a run: its host's messages while one is connected, its recording and its record otherwise.

Threads read and fold; the app takes a snapshot at each tick. Whoever needs the state of a run only once reads its
recording (`recorded`).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import UserError
from engine.host.client import HostClient, HostGone, HostProcess, InvalidMessage, attach
from engine.host.run_state import MAX_LOGS, RunState
from engine.protocol.commands import Command
from engine.protocol.messages import Episode, Event, Failed, Finished, Frame, Hello, KeptEvent, Log, Progress
from engine.runs.recording import read_recording
from engine.runs.run import Run, RunRecord
from mario_tui.data.format import counted
from mario_tui.data.run_status import RunStatus, Snapshot, failure


class Received:
    """Counts the lasting events of a connection, and remembers those that a later greeting may repeat.

    Args:
        hello: the first greeting; its events are from before this client, but for an end.
    """

    def __init__(self, hello: Hello) -> None:
        self._counts = Counter(hello.published)
        self._marks: set[KeptEvent] = set()
        self._logs = deque[KeptEvent](maxlen=MAX_LOGS)  # a greeting has no older ones
        for event in hello.events:
            self._remember(event)

    def add(self, event: Event) -> None:
        """Count an event that is not a greeting."""
        if isinstance(event, KeptEvent):
            self._counts[type(event).__name__] += 1
            self._remember(event)

    def catch_up(self, hello: Hello) -> tuple[dict[str, int], list[KeptEvent]]:
        """The number of events that are lost, by the name of their class, and the missed events that `hello` knows:
        all but episodes, in order."""
        known = [event for event in hello.events if not self._has(event)]
        for event in known:
            self.add(event)
        lost = {kind: count - self._counts[kind] for kind, count in hello.published.items()}
        self._counts = Counter(hello.published)
        return {kind: count for kind, count in lost.items() if count > 0}, known

    def _remember(self, event: KeptEvent) -> None:
        if isinstance(event, Log):
            self._logs.append(event)
        elif not isinstance(event, Episode | Finished | Failed):
            self._marks.add(event)

    def _has(self, event: KeptEvent) -> bool:
        return isinstance(event, Episode) or event in (self._logs if isinstance(event, Log) else self._marks)


LOOK_S = 2.0
"""Seconds between two looks at the record of a run without a connected host, and between two tries to connect."""
_MOST_POINTS, _LEAST_POINTS = 200_000, 100
_MOST_READ_BYTES, _MOST_KEPT_BYTES = 2**31, 2**26
"""Recordings of 2,000 long runs have about 1 GB, what is kept of them 50 MB."""
_READERS = threading.BoundedSemaphore(2)
"""Recordings that are read at the same time. Reading needs the interpreter's lock, for which the screen would have to
wait behind every reader."""


_Part = tuple[Path, str]
"""A run's folder, and what of it."""


class Allowance:
    """What a screen of many runs holds of them in all: somebody else may have made them. Each has fewer points the more
    there are, and no more than so many bytes are read and kept."""

    def __init__(self, runs: int) -> None:
        self.points = max(_LEAST_POINTS, _MOST_POINTS // max(1, runs))
        """Points and evaluations of each run."""
        self._lock = threading.Lock()
        self._read, self._kept = dict[_Part, int](), dict[_Part, int]()
        self._left_out = set[_Part]()

    def may_read(self, run: Run) -> bool:
        """Return whether its recording may be read."""
        with contextlib.suppress(OSError):
            return self._takes((run.path, "file"), run.history_path.stat().st_size, self._read, _MOST_READ_BYTES)
        return True

    def may_keep(self, run: Run, what: str, size: int) -> bool:
        """Return whether so many bytes may be kept."""
        return self._takes((run.path, what), size, self._kept, _MOST_KEPT_BYTES)

    def _takes(self, key: _Part, size: int, before: dict[_Part, int], most: int) -> bool:
        with self._lock:
            before.pop(key, None)
            if sum(before.values()) + size > most:
                self._left_out.add(key)
                return False
            before[key] = size
            self._left_out.discard(key)
            return True

    @property
    def told(self) -> str:
        """Return how much is left out; empty if nothing is."""
        runs = {path for path, _ in self._left_out.copy()}
        return f"{counted(len(runs), 'run')} too large to be shown" if runs else ""


def read_record(run: Run) -> RunRecord | UserError:
    """The run's record, or why there is none."""
    try:
        return run.record()
    except UserError as error:
        return error


def recording(run: Run) -> list[Event]:
    """The run's recording, as far as the record does not know better: if the host was killed, the record is newer, and
    if that was soon after a resume, the recorded end is an earlier one. Raises `UserError`."""
    record = run.record()
    other = {"finished": Failed, "failed": Finished}.get(record.state, Finished | Failed)

    def corrected(event: Event) -> Event:
        if isinstance(event, Hello):  # the folder may have been renamed since
            past = [each for each in event.events if not isinstance(each, other)]
            return msgspec.structs.replace(event, run=run.name, path=str(run.path), events=past)
        if isinstance(event, Progress) and event.env_steps < record.env_steps:
            mean_return = math.nan if record.mean_return is None else record.mean_return
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

    def __init__(self, run: Run, host: HostProcess | None = None, allowance: Allowance | None = None) -> None:
        """`allowance`: what may be held of a recording; None: all of it."""
        self.run, self._allowance = run, allowance
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
                    recorded = self._read_recording()
                    with self._lock:
                        vars(view).update(vars(recorded))
                        self._changed = True
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
            read_at, view = self.run.history_path.stat().st_mtime_ns, self._read_recording()
            with self._lock:
                if self._client is None:
                    self._view, self._read_at, self._changed = view, read_at, True

    def _read_recording(self) -> RunState:
        """Raises `UserError`."""
        allowance, read = self._allowance, RunState()
        if allowance is not None and not allowance.may_read(self.run):
            raise UserError(f"{self.run.name}: too large to be shown beside the others")
        for event in recording(self.run):
            read.apply(event)
        if allowance is None:
            return read
        read = read.brief(allowance.points)
        held = [read.hello, read.progress, read.end, read.points.items, [*read.events]]
        if not allowance.may_keep(self.run, "recording", len(msgspec.msgpack.encode(held))):
            raise UserError(f"{self.run.name}: too large to be shown beside the others")
        return read

    def _has_grown(self) -> bool:
        """Return whether there is more in the recording of a run on another machine."""
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
                    self.take(event, view)
        except InvalidMessage as error:
            problem = str(error)
        with self._lock:
            if client is self._client:
                self._client, self._problem, self._changed = None, problem, True

    def take(self, event: Event, view: RunState) -> None:
        """Take an event of the host into an attempt to connect."""
        with self._lock:
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
        """Return whether to connect again, as the record names the host `pid` now."""
        if self._view.hello is None:  # not yet, or it has failed
            return self._has_failed and (pid, self._pid) != (None, None)
        dropped = self._followed is not None and self._view.end is None
        return pid is not None and (dropped or pid != (self._pid if self._followed is None else self._followed))

    @property
    def was_live(self) -> bool:
        """Return whether a host was started here, or connected, so that an end is news."""
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
                newest: dict[str, Any] = {name: value for name, value in vars(view).items() if name in vars(before)}
                newest["points"] = before.points if points_same else tuple(view.points.items)
                newest["events"] = before.events if events_same else tuple(view.events)
                self._snapshot = replace(
                    before,
                    **newest,
                    others=before.others if others_same else tuple(view.events.others()),
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


def recorded_state(run: Run) -> RunState:
    """The state that the run's host recorded last, every half minute and at its end; empty if there is none."""
    state = RunState()
    try:
        for event in read_recording(run.history_path):
            state.apply(event)
    except UserError:
        return RunState()
    return state
