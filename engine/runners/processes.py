"""The pool in which a coordinator starts and watches its members.

A member that crashes or hangs is replaced. If the others can't continue without it, the coordinator exits, and the host
restarts it from the newest checkpoint. If the system refuses to start a process (too many open files or processes, no
memory), the pool tries again after a pause, and in the end gives up. Each member reports on its own queue.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from engine.protocol.messages import Beat, Failed, Log
from engine.runners.links import START_LIMIT_S, ParentLink, ReportQueue, Silence, member_main
from engine.runners.shared_state import HEARTBEAT_S, SharedState
from engine.runtime.processes import how_it_ended, start_held
from engine.runtime.threads import GraceTime

_LIMIT = 3


class FailedStarts:
    """Losses in a row of one member that had not played since the last one."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._played = 0

    def count(self, played: int) -> bool:
        """Count a loss of the member, which has played `played` environment steps in all.

        Returns whether it has now failed to start three times in a row, so that another try would be in vain.
        """
        self._in_a_row = self._in_a_row + 1 if played == self._played else 0
        self._played = played
        return self._in_a_row >= _LIMIT


_POLL_S = 0.25
LEAVE_S = 10.0
"""Seconds that members have to exit once told to stop."""


@dataclass(frozen=True)
class Role:
    """What the members of a run are."""

    name: str
    first: int = 0
    """Index of the first that the pool starts; 1 if the coordinator is member 0."""
    replaced: bool = True
    """Whether a lost member can be replaced."""


@dataclass(frozen=True)
class Patience:
    """How long the start of a member may take."""

    start_s: float = START_LIMIT_S
    """Seconds until its first heartbeat is overdue."""
    pauses_s: Sequence[float] = (1.0, 5.0, 15.0)
    """After each start in a row that the system refuses, seconds until the next; after the last one, the pool gives
    up."""


@dataclass
class _Member:
    """A process and its queue."""

    process: SpawnProcess
    reports: ReportQueue
    silence: Silence
    started_at: float = field(default_factory=time.monotonic)
    """CLOCK_MONOTONIC of its start, or of the newest sign of life while it starts."""
    due: float = 0.0
    """CLOCK_MONOTONIC until which calls of a user's code may last; the shared state has another."""
    reason: str = ""
    """Why it will end, as it told."""


@dataclass
class _Slot:
    """The place of one member."""

    index: int
    member: _Member | None = None
    """None until it could be started."""
    restarts: int = 0
    failed_starts: FailedStarts = field(default_factory=FailedStarts)
    refusals: int = 0
    """Starts in a row that the system has refused."""
    start_at: float = 0.0
    """CLOCK_MONOTONIC of the next start."""
    loss: str = ""
    """How the member was lost that has not been replaced yet."""


class LocalMembers:
    """Members of a run in processes of this machine, from `begin` on."""

    cluster = None

    def __init__(self, shared_state: SharedState) -> None:
        self.shared_state = shared_state
        self._pool: MemberPool | None = None

    def begin(self, role: Role, work: Callable[..., None], arguments: tuple[Any, ...], link: ParentLink) -> None:
        """Start them; see `MemberPool`."""
        self._pool = MemberPool(role, work, arguments, self.shared_state, link)

    def restarts(self, index: int) -> int:
        """Return how many times member `index` was replaced."""
        return 0 if self._pool is None else self._pool.restarts(index)

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop the members; kill those that still run after `leave_s` seconds."""
        self.shared_state.stop()
        if self._pool is not None:
            self._pool.close(leave_s)


class MemberPool:
    """Members `role.first` to the last of `shared_state`, each running `work(link, index, restarts, *arguments)`."""

    def __init__(
        self,
        role: Role,
        work: Callable[..., None],
        arguments: tuple[Any, ...],
        shared_state: SharedState,
        link: ParentLink,
        patience: Patience = Patience(),
    ) -> None:
        self._role, self._work, self._arguments = role, work, arguments
        self._shared_state, self._link, self._patience = shared_state, link, patience
        self._context = multiprocessing.get_context("spawn")
        self._closing = threading.Event()
        self._leave_s = LEAVE_S
        self._slots = [_Slot(index) for index in range(role.first, shared_state.members)]
        self._thread = threading.Thread(target=self._work_in_thread, name="pool", daemon=True)
        self._thread.start()

    def restarts(self, index: int) -> int:
        """Return how many times member `index` was replaced."""
        first = self._role.first
        return self._slots[index - first].restarts if index >= first else 0

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Wait for the members, which must have been told to stop; kill any still running after `leave_s` seconds."""
        self._leave_s = leave_s
        self._closing.set()
        self._thread.join()

    # ------------------------------------------------------------------------------------------ in the thread

    def _work_in_thread(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # its members end with this thread, and nobody would replace them
            self._link.fail(error)

    def _watch(self) -> None:
        # Members start in this thread, because Linux kills a child that asked for it (`killed_with_parent`) when the
        # thread that started it exits.
        grace = GraceTime(HEARTBEAT_S)
        while not self._closing.is_set():
            for slot in self._slots:
                if slot.member is None and time.monotonic() >= slot.start_at:
                    self._start(slot)
            sentinels = [member.process.sentinel for _, member in self._members()]
            queues: dict[Any, _Slot] = {
                member.reports: slot for slot, member in self._members() if not member.reports.closed
            }
            for ready in wait([*sentinels, *queues], timeout=_POLL_S):
                if ready in queues:
                    self._read(queues[ready])
            if self._closing.is_set():
                break
            now, spared = grace.look()
            for slot, member in self._members():
                if not member.process.is_alive():
                    self._read_all(slot, member)  # sent before its end
                    self._lost(slot, member.reason or how_it_ended(member.process.exitcode))
                elif not spared and self._hangs(slot.index, member, now):
                    self._lost(slot, "it hung")
                elif not spared and self._starts_too_long(slot.index, member, now):
                    self._lost(slot, f"it did not start within {self._patience.start_s:g} s")
        # Joined in this thread, because its exit would kill them; and for less time than the host's own limit.
        deadline = time.monotonic() + self._leave_s
        for slot, member in self._members():
            member.process.join(max(0.0, deadline - time.monotonic()))
            self._read_all(slot, member)  # it may tell why it does not end
            member.process.kill()
            member.process.join()
            member.reports.close()

    def _members(self) -> list[tuple[_Slot, _Member]]:
        """The members that have been started."""
        return [(slot, slot.member) for slot in self._slots if slot.member is not None]

    def _hangs(self, index: int, member: _Member, now: float) -> bool:
        due = float(self._shared_state.due[index])
        return due > 0 and member.silence.is_too_long(max(due, member.due), now)

    def _starts_too_long(self, index: int, member: _Member, now: float) -> bool:
        starting = self._shared_state.due[index] == 0
        return bool(starting and now - member.started_at > self._patience.start_s)

    def _start(self, slot: _Slot) -> None:
        """Start a member, or put it off if the system refuses that."""
        try:
            slot.member = self._started(slot.index, slot.restarts)
        except (OSError, MemoryError) as error:
            what = (
                f"{slot.loss}; it could not be restarted"
                if slot.loss
                else f"{self._role.name} {slot.index} could not start"
            )
            text = f"{what} ({error})"
            if slot.refusals >= len(self._patience.pauses_s):
                self._give_up(Failed(reason=text, final=True))
            pause_s = self._patience.pauses_s[slot.refusals]
            slot.refusals, slot.start_at = slot.refusals + 1, time.monotonic() + pause_s
            self._link.log(f"{text}; trying again in {pause_s:g} s", "warning")
            return
        slot.refusals = 0
        if slot.loss:
            self._link.log(f"{slot.loss}; restarted", "warning")
            slot.loss = ""

    def _started(self, index: int, restarts: int) -> _Member:
        self._shared_state.due[index] = 0
        reports = ReportQueue()
        process = self._context.Process(
            target=member_main,
            args=(self._work, reports, index, restarts, *self._arguments),
            name=f"{self._role.name} {index}",
        )
        try:
            start_held(process)
        except BaseException:
            reports.close()
            raise
        reports.only_read()  # so that the member's exit ends a read
        assert process.pid is not None
        return _Member(process, reports, Silence(process.pid, HEARTBEAT_S))

    def _read_all(self, slot: _Slot, member: _Member) -> None:
        """Read what a member has reported by now."""
        while not member.reports.closed and member.reports.poll():
            self._read(slot)

    def _read(self, slot: _Slot) -> None:
        assert slot.member is not None
        try:
            report = slot.member.reports.get()
        except (EOFError, OSError):
            slot.member.reports.close()
            return
        match report:
            case Beat():
                slot.member.started_at = time.monotonic()
                slot.member.due = slot.member.started_at + report.within_s
            case Log():
                self._link.log(f"{self._role.name} {slot.index}: {report.text}", report.level)
            case Failed():
                slot.member.reason = report.reason
                if report.final and not self._closing.is_set():
                    self._give_up(report)

    def _lost(self, slot: _Slot, reason: str) -> None:
        assert slot.member is not None
        slot.member.process.kill()
        slot.member.process.join()
        text = f"{self._role.name} {slot.index} was lost ({reason})"
        if not self._role.replaced or slot.failed_starts.count(int(self._shared_state.steps_of[slot.index])):
            self._give_up(Failed(reason=text, final=self._role.replaced))
        slot.member.reports.close()
        slot.member, slot.loss = None, text
        slot.restarts += 1
        self._start(slot)

    def _give_up(self, failure: Failed) -> None:
        """Exit this process from within the thread: the main thread may be waiting for the lost member."""
        self._link.send(failure)
        os._exit(1)
