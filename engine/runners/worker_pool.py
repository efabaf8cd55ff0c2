"""The members that a coordinator has started, and a thread that watches them.

A member that crashes or hangs is replaced. If the others can't continue without it, the coordinator exits, and the host
restarts it from the newest checkpoint. Each member reports on its own queue.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, Literal

from engine.protocol.messages import Failed, Log
from engine.runners.failed_starts import FailedStarts
from engine.runners.host_link import HostLink
from engine.runners.message_queue import ReportQueue
from engine.runners.process import member_main
from engine.runners.shared_state import HEARTBEAT_S, SharedState, overdue
from engine.runners.watchdog import START_LIMIT_S, GraceTime
from engine.runtime.exit_status import how_it_ended

Role = Literal["actor", "worker", "rank"]
_POLL_S = 0.25
LEAVE_S = 10.0
"""Seconds that members have to exit once told to stop."""


@dataclass
class _Slot:
    """One member: its current process and queue."""

    index: int
    process: SpawnProcess
    reports: ReportQueue
    restarts: int = 0
    failed_starts: FailedStarts = field(default_factory=FailedStarts)
    started_at: float = field(default_factory=time.monotonic)
    reason: str = ""


class LocalMembers:
    """Members of a run in processes of this machine. A subclass starts them: it makes the pool."""

    def __init__(self, shared_state: SharedState) -> None:
        self.shared_state = shared_state
        self._pool: WorkerPool | None = None

    def restarts(self, index: int) -> int:
        """How many times member `index` was replaced."""
        return 0 if self._pool is None else self._pool.restarts(index)

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop the members; kill those that still run after `leave_s` seconds."""
        self.shared_state.stop()
        if self._pool is not None:
            self._pool.close(leave_s)


class WorkerPool:
    """Members `first` to the last of `shared_state`, each running `work(link, index, restarts, *arguments)`.

    Args:
        replace: whether a lost member can be replaced.
        start_s: seconds until a member's first heartbeat is overdue.
    """

    def __init__(
        self,
        role: Role,
        work: Callable[..., None],
        arguments: tuple[Any, ...],
        shared_state: SharedState,
        link: HostLink,
        *,
        first: int = 0,
        replace: bool = True,
        start_s: float = START_LIMIT_S,
    ) -> None:
        self._role, self._work, self._arguments = role, work, arguments
        self._shared_state, self._link, self._first, self._replace = shared_state, link, first, replace
        self._context = multiprocessing.get_context("spawn")
        self._closing = threading.Event()
        self._start_s, self._leave_s = start_s, LEAVE_S
        self._started = threading.Event()
        self._slots: list[_Slot] = []
        self._thread = threading.Thread(target=self._watch, name="pool", daemon=True)
        self._thread.start()
        self._started.wait()
        if len(self._slots) < shared_state.members - first:
            raise RuntimeError(f"{role} {first + len(self._slots)} could not be started")

    def restarts(self, index: int) -> int:
        """How many times member `index` was replaced."""
        return self._slots[index - self._first].restarts if index >= self._first else 0

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Wait for the members, which must have been told to stop; kill any still running after `leave_s` seconds."""
        self._leave_s = leave_s
        self._closing.set()
        self._thread.join()

    # ------------------------------------------------------------------------------------------ in the thread

    def _watch(self) -> None:
        # Members start in this thread, because Linux kills a child that asked for it (`killed_with_parent`) when the
        # thread that started it exits.
        try:
            for index in range(self._first, self._shared_state.members):
                self._slots.append(_Slot(index, *self._start(index, 0)))
        finally:
            self._started.set()
        patience = GraceTime(HEARTBEAT_S)
        while not self._closing.is_set():
            sentinels: dict[Any, _Slot] = {slot.process.sentinel: slot for slot in self._slots}
            queues: dict[Any, _Slot] = {slot.reports: slot for slot in self._slots if not slot.reports.closed}
            for ready in wait([*sentinels, *queues], timeout=_POLL_S):
                if ready in queues:
                    self._read(queues[ready])
            if self._closing.is_set():
                break
            now, spared = patience.look()
            hung = overdue(self._shared_state.due, now) & (not spared)
            for slot in self._slots:
                if not slot.process.is_alive():
                    while not slot.reports.closed and slot.reports.poll():  # reports sent before its end
                        self._read(slot)
                    self._lost(slot, slot.reason or how_it_ended(slot.process.exitcode))
                elif hung[slot.index]:
                    self._lost(slot, "it hung")
                elif self._starts_too_long(slot, now) and not spared:
                    self._lost(slot, f"it did not start within {self._start_s:g} s")
        # Joined in this thread, because its exit would kill them; and for less time than the host's own limit.
        deadline = time.monotonic() + self._leave_s
        for slot in self._slots:
            slot.process.join(max(0.0, deadline - time.monotonic()))
            slot.process.kill()
            slot.process.join()
            slot.reports.close()

    def _starts_too_long(self, slot: _Slot, now: float) -> bool:
        starting = self._shared_state.due[slot.index] == 0
        return bool(starting and now - slot.started_at > self._start_s)

    def _start(self, index: int, restarts: int) -> tuple[SpawnProcess, ReportQueue]:
        self._shared_state.due[index] = 0
        reports = ReportQueue()
        process = self._context.Process(
            target=member_main,
            args=(self._work, reports, index, restarts, *self._arguments),
            name=f"{self._role} {index}",
        )
        process.start()
        reports.only_read()  # so that the member's exit ends a read
        return process, reports

    def _read(self, slot: _Slot) -> None:
        try:
            report = slot.reports.get()
        except (EOFError, OSError):
            slot.reports.close()
            return
        match report:
            case Log():
                self._link.log(f"{self._role} {slot.index}: {report.text}", report.level)
            case Failed():
                slot.reason = report.reason
                if report.final:
                    self._give_up(report)

    def _lost(self, slot: _Slot, reason: str) -> None:
        slot.process.kill()
        slot.process.join()
        text = f"{self._role} {slot.index} was lost ({reason})"
        if not self._replace or slot.failed_starts.count(int(self._shared_state.counts[slot.index, 0])):
            self._give_up(Failed(reason=text, traceback="", log_path="", checkpoint=None, final=self._replace))
        slot.restarts += 1
        slot.reason = ""
        slot.reports.close()
        slot.process, slot.reports = self._start(slot.index, slot.restarts)
        slot.started_at = time.monotonic()
        self._link.log(f"{text}; restarted", "warning")

    def _give_up(self, failure: Failed) -> None:
        """Exit this process from within the thread: the main thread may be waiting for the lost member."""
        self._link.send(failure)
        os._exit(1)
