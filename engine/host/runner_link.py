"""The host's end of the queues to the process that trains: sends commands, and hands on reports.

Threads read and write, so the host's event loop never waits for the other process: a multiprocessing queue can't be
awaited, a process that hangs does not read, and handling a report can take long (a checkpoint's above all).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from engine.protocol.commands import Command
from engine.protocol.failures import describe
from engine.protocol.messages import Frame, Report
from engine.runners.message_queue import CommandQueue, ReportQueue
from engine.runners.parent_link import Outstanding

POLL_S = 0.5


class Process(Protocol):
    """The process at the other end."""

    def is_alive(self) -> bool: ...
    def kill(self) -> None: ...
    def join(self) -> None: ...


class RunnerLink(ABC):
    """Reports arrive in `reports`, None once the process is gone."""

    pid: int | None = None
    """The process that the run's others descend from; None: this one."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self.ready = False
        """Whether it has started and is training."""
        self._process: Process | None = None

    @abstractmethod
    def start(self, resume_from: Path | None) -> None:
        """Begin to read and write."""

    @abstractmethod
    def picture(self, seen: int) -> Frame | None:
        """The newest frame of the rank-0 game; None if there is none, or its index is still `seen`."""

    @abstractmethod
    def how_it_ended(self) -> str: ...

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def send(self, command: Command) -> None:
        """Queue a command; it is sent as soon as the process reads."""
        if self._process is not None:
            self._outbox.put(command)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _follow(
        self, process: Process, commands: CommandQueue, reports: ReportQueue, *work: Callable[[Process], None]
    ) -> None:
        """Start the threads; those of `work` besides. Raises `RuntimeError` if the system refuses one."""
        self._process, self._outbox = process, _Outbox(commands)
        loop = asyncio.get_running_loop()
        for each in (*(partial(each, process) for each in work), self._outbox.write_forever):
            threading.Thread(target=self._guarded, args=(process, loop, each), daemon=True).start()
        threading.Thread(target=self._read, args=(reports, process, loop), daemon=True).start()  # it reports the end

    # ------------------------------------------------------------------------------------------ in threads

    def _guarded(
        self, process: Process, loop: asyncio.AbstractEventLoop, work: Callable[..., None], *arguments: Any
    ) -> None:
        """Let an exception in a thread end the process: nobody would hear of it otherwise."""
        try:
            work(*arguments)
        except Exception as error:
            self._pass_on(describe(error), loop)
            process.kill()

    def _read(self, reports: ReportQueue, process: Process, loop: asyncio.AbstractEventLoop) -> None:
        self._guarded(process, loop, self._read_all, reports, process, loop)
        process.join()
        self._outbox.close()
        self._pass_on(None, loop)

    def _read_all(self, reports: ReportQueue, process: Process, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(EOFError, OSError):
            while process.is_alive() or reports.poll():  # another process may have inherited the writing end
                if reports.poll(POLL_S):
                    self._take(reports.get(), loop)

    def _take(self, report: Report, loop: asyncio.AbstractEventLoop) -> None:
        self._pass_on(report, loop)

    def _pass_on(self, report: Report | None, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self.reports.put_nowait, report)


class _Outbox:
    """Commands waiting to be written to the queue."""

    def __init__(self, queue: CommandQueue) -> None:
        self._queue, self._waiting, self._changed, self._closed = queue, Outstanding(), threading.Condition(), False

    def put(self, command: Command) -> None:
        with self._changed:
            self._waiting.put(command)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def write_forever(self) -> None:
        """Write commands until the process is gone."""
        with contextlib.suppress(OSError):
            while not self._closed:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closed)
                    commands = self._waiting.take()
                for command in commands:
                    self._queue.put(command)
