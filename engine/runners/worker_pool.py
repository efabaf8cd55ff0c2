"""The processes that a leading process has started, and a thread that watches them.

A member that dies or misses its heartbeat is replaced, or, where the others can't go on without it, ends the leading
process, which the host then starts again from the newest checkpoint. Each member has a pipe of its own.
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
from engine.runners.host_link import HostLink
from engine.runners.message_queue import ReportQueue
from engine.runners.process import member_main
from engine.runners.shared_state import BEAT_S, SharedState, late
from engine.runners.watchdog import START_S, Patience

Role = Literal["actor", "worker", "rank"]
_LOOK_EVERY_S = 0.25
_VAIN_STARTS = 3
"""Deaths of a member in a row before it had played a step, after which the run is given up."""
_LEAVE_S = 10.0
"""Seconds in which members end by themselves once they are told to."""


@dataclass
class _Post:
    """A member's place; processes come and go in it."""

    index: int
    process: SpawnProcess
    reports: ReportQueue
    restarts: int = 0
    vain: int = 0
    started_at: float = field(default_factory=time.monotonic)
    played: int = 0
    """Environment steps when the former one was lost."""
    reason: str = ""


class WorkerPool:
    """Members `first` to the last of `shared_state`, each running `work(link, index, restarts, *arguments)`.

    Args:
        replace: whether a member that is lost can be replaced.
        start_s: seconds in which a member has to give its first heartbeat.
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
        start_s: float = START_S,
    ) -> None:
        self._role, self._work, self._arguments = role, work, arguments
        self._shared_state, self._link, self._first, self._replace = shared_state, link, first, replace
        self._context = multiprocessing.get_context("spawn")
        self._closing = threading.Event()
        self._start_s, self._leave_s = start_s, _LEAVE_S
        self._started = threading.Event()
        self._posts: list[_Post] = []
        self._thread = threading.Thread(target=self._watch, name="pool", daemon=True)
        self._thread.start()
        self._started.wait()
        if len(self._posts) < shared_state.members - first:
            raise RuntimeError(f"{role} {first + len(self._posts)} could not be started")

    @property
    def all_ready(self) -> bool:
        """Whether every member has given a heartbeat since it was started."""
        return bool((self._shared_state.due[self._first :] > 0).all())

    def restarts(self, index: int) -> int:
        """How often member `index` was replaced."""
        return self._posts[index - self._first].restarts if index >= self._first else 0

    def close(self, leave_s: float = _LEAVE_S) -> None:
        """Wait for the members, which were told to stop; kill who stays for longer."""
        self._leave_s = leave_s
        self._closing.set()
        self._thread.join()

    # ------------------------------------------------------------------------------------------ in the thread

    def _watch(self) -> None:
        # Started in this thread, too: on Linux a child is told of the end of the thread that started it.
        try:
            for index in range(self._first, self._shared_state.members):
                self._posts.append(_Post(index, *self._start(index, 0)))
        finally:
            self._started.set()
        patience = Patience(BEAT_S)
        while not self._closing.is_set():
            sentinels: dict[Any, _Post] = {post.process.sentinel: post for post in self._posts}
            queues: dict[Any, _Post] = {post.reports: post for post in self._posts if not post.reports.closed}
            looked_at = time.monotonic()
            for ready in wait([*sentinels, *queues], timeout=_LOOK_EVERY_S):
                if ready in queues:
                    self._read(queues[ready])
            if self._closing.is_set():
                break
            spared = patience.spares(time.monotonic() - looked_at)
            overdue = late(self._shared_state.due) & (not spared)
            for post in self._posts:
                if not post.process.is_alive():
                    while not post.reports.closed and post.reports.poll():  # its last words; their end closes the queue
                        self._read(post)
                    self._lost(post, post.reason or _how_it_ended(post.process.exitcode))
                elif overdue[post.index]:
                    self._lost(post, "it stood still")
                elif self._starts_too_long(post) and not spared:
                    self._lost(post, f"it did not start within {self._start_s:g} s")
        # Waited for in this thread, because its end would end them; and less long than the host waits for a sign.
        deadline = time.monotonic() + self._leave_s
        for post in self._posts:
            post.process.join(max(0.0, deadline - time.monotonic()))
            post.process.kill()
            post.process.join()
            post.reports.close()

    def _starts_too_long(self, post: _Post) -> bool:
        starting = self._shared_state.due[post.index] == 0
        return bool(starting and time.monotonic() - post.started_at > self._start_s)

    def _start(self, index: int, restarts: int) -> tuple[SpawnProcess, ReportQueue]:
        self._shared_state.due[index] = 0
        reports = ReportQueue()
        process = self._context.Process(
            target=member_main,
            args=(self._work, reports, index, restarts, *self._arguments),
            name=f"{self._role} {index}",
        )
        process.start()
        reports.only_read()  # so that the member's death ends a read
        return process, reports

    def _read(self, post: _Post) -> None:
        try:
            report = post.reports.get()
        except (EOFError, OSError):
            post.reports.close()
            return
        match report:
            case Log():
                self._link.log(f"{self._role} {post.index}: {report.text}", report.level)
            case Failed():
                post.reason = report.reason
                if report.final:
                    self._give_up(report)

    def _lost(self, post: _Post, reason: str) -> None:
        post.process.kill()
        post.process.join()
        played = int(self._shared_state.counts[post.index, 0])
        post.vain, post.played = post.vain + 1 if played == post.played else 0, played
        text = f"{self._role} {post.index} was lost ({reason})"
        if not self._replace or post.vain >= _VAIN_STARTS:
            self._give_up(Failed(reason=text, traceback="", log_path="", checkpoint=None, final=self._replace))
        post.restarts += 1
        post.reason = ""
        post.reports.close()
        post.process, post.reports = self._start(post.index, post.restarts)
        post.started_at = time.monotonic()
        self._link.log(f"{text}; another one takes its place", "warning")

    def _give_up(self, failure: Failed) -> None:
        """End this process from within the thread: its main thread may wait for the one that was lost."""
        self._link.send(failure)
        os._exit(1)


def _how_it_ended(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
