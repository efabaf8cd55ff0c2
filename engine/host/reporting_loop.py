"""The host's side of a training loop outside the program: the process that has started this host, and reports to it.

The host can ask it to pause or to stop, and never ends it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from engine.host.runner_link import RunnerLink
from engine.protocol.messages import Done, Failed, Frame, Report
from engine.runners.message_queue import CommandQueue, ReportQueue


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
