"""The host's link to what trains: a runner's process that it starts and ends, or a training loop outside the program.

Such a loop has started this host, and reports to it; the host can ask it to pause or to stop, and never ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.commands import Command
from engine.protocol.framing import failure_of
from engine.protocol.messages import SCREEN_SHAPE, Beat, Done, Failed, Frame, Log, Ready, Report
from engine.runners.links import (
    SILENCE_LIMIT_S,
    START_LIMIT_S,
    CommandQueue,
    FrameMailbox,
    Outstanding,
    ReportQueue,
    Silence,
    main,
)
from engine.runs.run import Run
from engine.runtime.processes import how_it_ended, start_held
from engine.runtime.threads import GraceTime

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
            self._pass_on(failure_of(error), loop)
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


class RunnerProcess(RunnerLink):
    """One process at a time; call `start` again after it exited."""

    def __init__(
        self, run: Run, config: RunConfig, *, start_s: float = START_LIMIT_S, beat_s: float = SILENCE_LIMIT_S
    ) -> None:
        """`start_s` and `beat_s`: seconds of silence, during the start and later, after which it counts as hung."""
        super().__init__()
        self._run, self._config, self._start_s, self._beat_s = run, config, start_s, beat_s
        self._context = multiprocessing.get_context("spawn")
        self._screen = FrameMailbox(self._context)
        self._hung = False
        self._warning = ""  # since the last beat: what it may wait for
        self._spawned: SpawnProcess | None = None
        self._deadline = math.inf  # CLOCK_MONOTONIC, written by the reading thread; silence beyond it means hung

    def start(self, resume_from: Path | None) -> None:
        """If the system refuses to start the process, or a thread for it, that is reported like its failure."""
        self.ready, self._hung, self._deadline = False, False, time.monotonic() + self._start_s
        self._process = self._spawned = None
        self._warning = ""
        try:
            commands, reports = CommandQueue(), ReportQueue()
            process = self._spawned = self._context.Process(
                target=main,
                args=(self._run.look(), self._config, commands, reports, self._screen, resume_from),
                name="runner",
            )
            start_held(process)
            commands.only_write()  # so that the runner's exit ends a blocked write or read
            reports.only_read()
            assert process.pid is not None
            self._follow(process, commands, reports, partial(self._watch, Silence(process.pid, self._beat_s)))
        except (OSError, RuntimeError, UserError) as error:
            self.kill()
            reason = f"the runner process could not be started ({error})"
            self.reports.put_nowait(Failed(reason=reason))
            self.reports.put_nowait(None)

    def picture(self, seen: int) -> Frame | None:
        found = self._screen.read(seen)
        if found is None:
            return None
        (height, width, _), (index, rgb, thought) = SCREEN_SHAPE, found
        return Frame(index=index, height=height, width=width, rgb=rgb, thought=thought)

    def how_it_ended(self) -> str:
        code = None if self._spawned is None else self._spawned.exitcode
        if self._hung:
            hung = "hung" if self.ready else f"did not start within {self._start_s:g} s"
            return f"the runner process {hung}" + (f" ({self._warning})" if self._warning else "")
        return f"the runner process crashed ({how_it_ended(code)})"

    # ------------------------------------------------------------------------------------------ in threads

    def _take(self, report: Report, loop: asyncio.AbstractEventLoop) -> None:
        """Also extend the deadline."""
        self.ready = self.ready or isinstance(report, Ready)
        least_s = self._beat_s if self.ready else self._start_s
        match report:
            case Beat():
                self._warning = ""
                self._deadline = time.monotonic() + max(report.within_s, 0.0 if self.ready else least_s)
            case Log(level="warning", text=text):
                self._warning = text
        self._deadline = max(self._deadline, time.monotonic() + least_s)  # a heartbeat may have promised more
        super()._take(report, loop)

    def _watch(self, silence: Silence, process: Process) -> None:
        """Kill the process if it hangs."""
        grace = GraceTime(self._beat_s)
        while process.is_alive():
            now, spared = grace.look()
            if silence.is_too_long(self._deadline, now) and not spared:
                self._hung = True
                process.kill()
            time.sleep(POLL_S)


class _Parent:
    """The process that has started this one. Its end of the queues doesn't tell whether it is alive: processes that it
    forks inherit them."""

    def __init__(self) -> None:
        self.pid, self._left = os.getppid(), False

    def is_alive(self) -> bool:
        return not self._left and os.getppid() == self.pid

    def kill(self) -> None:
        """Leave it alone: it goes on without this host."""
        self._left = True

    def join(self) -> None: ...


class ReportingLoop(RunnerLink):
    """`reports`, `commands`: file descriptors of the queues."""

    def __init__(self, reports: int, commands: int) -> None:
        super().__init__()
        self._parent, self.ready = _Parent(), True
        self.pid = self._parent.pid
        self._queues = CommandQueue.inherited(commands, reads=False), ReportQueue.inherited(reports, reads=True)
        self._frame: Frame | None = None

    def start(self, resume_from: Path | None) -> None:
        self._follow(self._parent, *self._queues)

    def picture(self, seen: int) -> Frame | None:
        frame = self._frame
        return None if frame is None or frame.index == seen else frame

    def how_it_ended(self) -> str:
        return "the reporting process ended"

    def _take(self, report: Report, loop: asyncio.AbstractEventLoop) -> None:
        """Of frames, keep the newest. The end of the run is not that of the process."""
        if isinstance(report, Frame):
            self._frame = report
            return
        super()._take(report, loop)
        if isinstance(report, Done | Failed):
            self._parent.kill()
