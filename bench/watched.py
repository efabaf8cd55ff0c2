"""A training run and a dashboard that watches it (the real program in a pty), to measure the cost of watching."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.host.client import HostClient
from engine.protocol.messages import Progress
from engine.runs.run import Run
from tests.support.images import CELL, REPLIES
from tests.support.program import Terminal, headless, next_event, read_event, the_run


@contextmanager
def training(folder: Path) -> Iterator[Run]:
    """A run of Mario with 32 lanes that has begun to learn."""
    with headless("--parallel-envs", "32", "--burnin", "2000", "--eval-every", "0", cwd=folder) as process:
        read_event(process, "progress", state="running")
        run = the_run(folder)
        with HostClient(run) as client:
            next_event(client, Progress, lambda progress: progress.updates > 10)
        yield run


class Watched(Terminal):
    """A dashboard whose output is continuously read and counted."""

    def __init__(self, folder: Path, columns: int, rows: int, protocol: str = "text") -> None:
        """`protocol`: how the terminal draws images, see `tests.support.images`."""
        super().__init__("attach", cwd=folder, columns=columns, rows=rows, replies=REPLIES[protocol], cell=CELL)
        self.wait_for("● running")
        self.bytes = 0
        self._watching = True
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while self._watching:
            if select.select([self._master], [], [], 0.1)[0]:
                data = os.read(self._master, 65536)
                self.bytes += len(data)
                self.keep(data)

    def leave(self) -> None:
        self._watching = False
        self._thread.join()
        self.send("q")
        self.wait()
