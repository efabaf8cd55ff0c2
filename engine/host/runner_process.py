"""The host's side of the coordinator process: starts it, and kills it if it hangs."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import time
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path

from engine.config.run_config import RunConfig
from engine.emulators.protocol import SCREEN_SHAPE
from engine.host.runner_link import POLL_S, Process, RunnerLink
from engine.protocol.messages import Beat, Failed, Frame, Log, Ready, Report
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.message_queue import CommandQueue, ReportQueue
from engine.runners.process import main
from engine.runners.watchdog import SILENCE_LIMIT_S, START_LIMIT_S, GraceTime, Silence
from engine.runtime.exit_status import how_it_ended


class RunnerProcess(RunnerLink):
    """One process at a time; call `start` again after it exited."""

    def __init__(
        self, run: Path, config: RunConfig, *, start_s: float = START_LIMIT_S, beat_s: float = SILENCE_LIMIT_S
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
                args=(self._run, self._config, commands, reports, self._screen, resume_from),
                name="runner",
            )
            process.start()
            commands.only_write()  # so that the runner's exit ends a blocked write or read
            reports.only_read()
            assert process.pid is not None
            self._follow(process, commands, reports, partial(self._watch, Silence(process.pid, self._beat_s)))
        except (OSError, RuntimeError) as error:
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
        silence_s = report.within_s if isinstance(report, Beat) else self._beat_s
        match report:
            case Beat():
                self._warning = ""
            case Log(level="warning", text=text):
                self._warning = text
        self._deadline = time.monotonic() + (silence_s if self.ready else max(silence_s, self._start_s))
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
