"""The host's end of the process that trains: starts it, reads its reports, and notices when it hangs.

A thread reads the pipe, because a pipe of multiprocessing can't be awaited. It notes when something came, too: handling
a report may take long, a checkpoint's above all.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import signal
import threading
import time
from pathlib import Path

from engine.config import RunConfig
from engine.messages import Beat, Command, Ready, Report, decode_report, encode
from engine.runners.channel import BEAT_S, START_S, Patience, SharedScreen
from engine.runners.process import main


class RunnerProcess:
    """One process at a time; `start` again after it has ended. Its reports come in `reports`, None at its end."""

    def __init__(self, run: Path, config: RunConfig, start_s: float = START_S) -> None:
        """`start_s`: seconds of silence that it may take to start."""
        self._run, self._config, self._start_s = run, config, start_s
        self._context = multiprocessing.get_context("spawn")
        self.screen = SharedScreen(self._context)
        self.reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self.ready = False
        """Whether it has built everything and trains."""
        self._hung = False
        self._heard_by = math.inf  # CLOCK_MONOTONIC; silence for longer means that it hangs. The thread's to write
        self._patience = Patience(BEAT_S)

    def start(self, resume_from: Path | None) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=main, args=(self._run, self._config, theirs, self.screen, resume_from), name="runner"
        )
        self.ready, self._hung, self._heard_by = False, False, time.monotonic() + self._start_s
        self._process.start()
        theirs.close()  # so that our end sees the runner's death
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def send(self, command: Command) -> None:
        with contextlib.suppress(OSError):  # it is gone; its end is on the way
            self._pipe.send_bytes(encode(command))

    def kill(self) -> None:
        self._process.kill()

    def watch(self, slept_s: float) -> None:
        """Kill it if it hangs. Call about once a second; one who was held up himself gives it more time."""
        spared = self._patience.spares(slept_s)
        if time.monotonic() > self._heard_by and not spared and self.is_alive:
            self._hung = True
            self.kill()

    def how_it_ended(self) -> str:
        code = self._process.exitcode
        if self._hung:
            hung = "stood still" if self.ready else f"did not start within {self._start_s:g} s"
            return f"the runner process {hung}"
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        return f"the runner process died ({how})"

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                report = decode_report(self._pipe.recv_bytes())
                self._heard(report)
                loop.call_soon_threadsafe(self.reports.put_nowait, report)
        self._process.join()
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(self.reports.put_nowait, None)

    def _heard(self, report: Report) -> None:
        """It has reported, so it will be heard of again."""
        self.ready = self.ready or isinstance(report, Ready)
        beat_s = report.within_s if isinstance(report, Beat) else BEAT_S
        self._heard_by = time.monotonic() + (beat_s if self.ready else max(beat_s, self._start_s))
