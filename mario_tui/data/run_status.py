"""The state of a run, as all of mario-tui tells it, what panels show of it (`Snapshot`), and the exit status of a
command that followed it to its end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from engine.errors import UserError
from engine.protocol.messages import (
    Curriculum,
    Failed,
    Finished,
    Hello,
    KeptEvent,
    Lanes,
    Members,
    Point,
    Progress,
    Ready,
    System,
    TimeSplits,
)
from engine.protocol.outcome import Outcome
from engine.runs.run import ACTIVE, NOT_BEGUN, Run, RunRecord, end_state
from engine.runtime.text import printable


class RunStatus(StrEnum):
    """The states of a run, in the order in which the list of runs sorts them, each with its symbol and its colour."""

    symbol: str
    colour: str

    def __new__(cls, name: str, symbol: str = "", colour: str = "") -> Self:
        self = str.__new__(cls, name)
        self._value_, self.symbol, self.colour = name, symbol, colour
        return self

    RUNNING = "running", "●", "green"
    PAUSING = "pausing", "◍", "yellow"
    """It was asked to pause, and still trains: in an evaluation, say, or in a loop that has not looked yet."""
    JUDGING = "judging", "◎", "green"
    """Training is done, and its final evaluation plays."""
    STARTING = "starting", "◌", "cyan"
    STOPPING = "stopping", "◍", "yellow"
    PAUSED = "paused", "‖", "yellow"
    SILENT = "silent", "…", "red"
    """Its host is alive, but has not reported for some seconds."""
    CONNECTING = "connecting", "◌", "cyan"
    """Its host has not answered yet."""
    UNREACHABLE = "unreachable", "?", "red"
    """Its host is alive, but can't be reached."""
    LOST = "lost", "?", "red"
    """Its host is gone without having told of an end."""
    FAILED = "failed", "✗", "red"
    DAMAGED = "damaged", "!", "red"
    """Its record can't be read."""
    STOPPED = "stopped", "■", "yellow"
    """It ended in order before its steps or episodes were done."""
    FINISHED = "finished", "✓", "green"

    @classmethod
    def of_record(cls, record: RunRecord) -> RunStatus:
        """The state that a run's record tells."""
        return cls(record.told_state)

    @classmethod
    def of_progress(cls, progress: Progress) -> RunStatus:
        """The state that a run's host has told."""
        is_pausing = (progress.state, progress.wants) == ("running", "paused")
        return cls.PAUSING if is_pausing else cls(progress.state)

    @property
    def rank(self) -> int:
        """Its place in the order of states."""
        return list(RunStatus).index(self)

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended, in whatever way."""
        return not self.is_active

    @property
    def has_failed(self) -> bool:
        """Return whether the run has ended, but not in order."""
        return self in (RunStatus.FAILED, RunStatus.LOST, RunStatus.DAMAGED)

    @property
    def is_active(self) -> bool:
        """Return whether a host is alive, as far as known."""
        return self in (*ACTIVE, RunStatus.PAUSING, RunStatus.CONNECTING, RunStatus.UNREACHABLE)


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
        """Return what the episodes of the run's game yield."""
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
        status = RunStatus.of_progress(self.progress)
        return RunStatus.STOPPING if status.is_over else status  # how it ended comes with the end itself

    @property
    def reason(self) -> str:
        """Why the run is in that state; empty if there is nothing to tell."""
        if self.end is None or not self.followed:
            return "" if self.connected else self.recorded[1]
        return self.end.reason if isinstance(self.end, Failed) else self.end.summary.reason

    @property
    def live(self) -> bool:
        """Return whether a host is connected, so that the data is current and commands can be sent."""
        return self.connected and self.end is None

    @property
    def running(self) -> bool:
        """Return whether the run is training, so that its rates are current."""
        return self.live and self.status in (RunStatus.RUNNING, RunStatus.PAUSING)


def exit_status(run: Run, end: Finished | Failed | None) -> int:
    """0 if a run has finished or was stopped with its state saved; otherwise 1, with the reason on stderr. `end`: what
    its host has told.

    Raises `UserError` (exit status 2) if this machine can't do what was requested.
    """
    if isinstance(end, Finished):
        if end.summary.reason != NOT_BEGUN:
            return 0
        print(printable(f"mario-tui: {run.name}: {NOT_BEGUN}"), file=sys.stderr)
        return 1
    if isinstance(end, Failed) and end.usage:
        raise UserError(end.reason)
    # Without `end`, it crashed, or its recording, which tells more, could not be written.
    reason = failure(run.record()) if end is None else end.reason
    if not reason:
        return 0
    print(printable(f"mario-tui: {failed_line(run, reason)}"), file=sys.stderr)
    return 1


def failure(record: RunRecord) -> str:
    """Why a run failed that has no host any more; empty if it has finished or was stopped."""
    return "" if record.state == "finished" else record.reason or "its host crashed"


def failed_line(run: Run, reason: str) -> str:
    return f"{run.name} failed: {reason}; log: {run.log_path}"
