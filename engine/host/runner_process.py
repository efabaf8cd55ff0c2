"""The host's side of the coordinator process: starts it, sends commands, reads reports, and kills it if it hangs.

Threads read, write and watch, so the host's event loop never waits for the runner: a multiprocessing queue can't be
awaited, a hung runner does not read, and handling a report can take long (a checkpoint's above all).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from engine.config.run_config import RunConfig
from engine.protocol.commands import Command
from engine.protocol.failures import describe
from engine.protocol.messages import Beat, Failed, Ready, Report
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.message_queue import CommandQueue, ReportQueue
from engine.runners.parent_link import Outstanding
from engine.runners.process import main
from engine.runners.watchdog import SILENCE_LIMIT_S, START_LIMIT_S, GraceTime

_POLL_S = 0.5


class RunnerProcess:
    """One process at a time; call `start` again after it exited. Reports arrive in `reports`, None once it exited."""

    def __init__(
        self, run: Path, config: RunConfig, *, start_s: float = START_LIMIT_S, beat_s: float = SILENCE_LIMIT_S
    ) -> None:
        """`start_s` and `beat_s`: seconds of silence, during the start and later, after which it counts as hung."""
        self._run, self._config, self._start_s, self._beat_s = run, config, start_s, beat_s
        self._context = multiprocessing.get_context("spawn")
        self.screen = FrameMailbox(self._context)
        self.reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self.ready = False
        """Whether it has started and is training."""
        self._hung = False
        self._process: SpawnProcess | None = None
        self._deadline = math.inf  # CLOCK_MONOTONIC, written by the reading thread; silence beyond it means hung

    def start(self, resume_from: Path | None) -> None:
        """If the system refuses to start the process, or a thread for it, that is reported like its failure."""
        self.ready, self._hung, self._deadline = False, False, time.monotonic() + self._start_s
        self._process = None
        try:
            commands, reports = CommandQueue(), ReportQueue()
            process = self._context.Process(
                target=main,
                args=(self._run, self._config, commands, reports, self.screen, resume_from),
                name="runner",
            )
            process.start()
            self._process, self._outbox = process, _Outbox(commands)
            commands.only_write()  # so that the runner's exit ends a blocked write or read
            reports.only_read()
            loop = asyncio.get_running_loop()
            for work, arguments in (
                (self._guarded, (process, loop, self._watch, process)),
                (self._guarded, (process, loop, self._outbox.write_forever)),
                (self._read, (reports, process, loop)),  # the last: it reports the end
            ):
                threading.Thread(target=work, args=arguments, daemon=True).start()
        except (OSError, RuntimeError) as error:
            self.kill()
            reason = f"the runner process could not be started ({error})"
            self.reports.put_nowait(Failed(reason=reason, traceback="", log_path="", checkpoint=None))
            self.reports.put_nowait(None)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def send(self, command: Command) -> None:
        """Queue a command; it is sent as soon as the runner reads."""
        if self._process is not None:
            self._outbox.put(command)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def how_it_ended(self) -> str:
        code = None if self._process is None else self._process.exitcode
        if self._hung:
            hung = "hung" if self.ready else f"did not start within {self._start_s:g} s"
            return f"the runner process {hung}"
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        return f"the runner process crashed ({how})"

    # ------------------------------------------------------------------------------------------ in threads

    def _guarded(
        self, process: SpawnProcess, loop: asyncio.AbstractEventLoop, work: Callable[..., None], *arguments: Any
    ) -> None:
        """Let an exception in a thread end the process: nobody would hear of it otherwise."""
        try:
            work(*arguments)
        except Exception as error:
            self._pass_on(describe(error), loop)
            process.kill()

    def _read(self, reports: ReportQueue, process: SpawnProcess, loop: asyncio.AbstractEventLoop) -> None:
        self._guarded(process, loop, self._read_all, reports, loop)
        process.join()
        self._outbox.close()
        self._pass_on(None, loop)

    def _read_all(self, reports: ReportQueue, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                report = reports.get()
                self._heard(report)
                self._pass_on(report, loop)

    def _pass_on(self, report: Report | None, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self.reports.put_nowait, report)

    def _heard(self, report: Report) -> None:
        """Extend the deadline after a report."""
        self.ready = self.ready or isinstance(report, Ready)
        silence_s = report.within_s if isinstance(report, Beat) else self._beat_s
        self._deadline = time.monotonic() + (silence_s if self.ready else max(silence_s, self._start_s))

    def _watch(self, process: SpawnProcess) -> None:
        """Kill the process if it hangs."""
        grace = GraceTime(self._beat_s)
        while process.is_alive():
            now, spared = grace.look()
            if now > self._deadline and not spared:
                self._hung = True
                process.kill()
            time.sleep(_POLL_S)


class _Outbox:
    """Commands waiting to be written to the runner's queue."""

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
        """Write commands until the runner is gone."""
        with contextlib.suppress(OSError):
            while not self._closed:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closed)
                    commands = self._waiting.take()
                for command in commands:
                    self._queue.put(command)
