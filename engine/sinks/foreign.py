"""A sink with code of other packages, which runs in a process of its own: the host imports nothing of it, and never
waits for it. It is fed over a pipe; see `engine.sinks.process`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from engine.protocol.framing import pack
from engine.protocol.messages import Episode, Progress
from engine.protocol.sinks import Begin, SinkEvent
from engine.runtime.exit_status import how_it_ended
from engine.sinks.process import END_S
from engine.sinks.queued_writer import QueuedSink, QueuedWriter

_MAX_ANSWER_BYTES = 2**16


class SinkEnded(Exception):
    """The process of a sink has ended before the run, or did not end after it; the text says how."""


class ForeignSink(QueuedSink):
    """The host's side of a sink that an installed package names `name`, or of one for an experiment tracker."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def take(self, event: SinkEvent) -> None:
        """Send an event. Raises `SinkEnded` if the process has ended."""
        if isinstance(event, Begin):
            self._start()
        if self._process is None or self._writer is None:
            return
        if self._process.poll() is not None:
            raise SinkEnded(self._how_it_ended(self._process))
        self._writer.put(pack(event), droppable=isinstance(event, Episode | Progress))

    def close(self) -> None:
        """Let the process end in order, and kill it if that takes longer than `END_S`. Raises `SinkEnded` unless it has
        ended in order."""
        if self._process is None or self._writer is None:
            return
        deadline = time.monotonic() + END_S
        with contextlib.suppress(OSError):
            self._writer.close(END_S)
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with the processes that it has started
            self._process.wait()
            raise SinkEnded(f"it did not end within {END_S:g} s of the run's end, and was killed") from None
        if self._process.returncode:
            raise SinkEnded(self._how_it_ended(self._process))

    def _start(self) -> None:
        # As for the host: a module in the working directory can't shadow ours. It has a group of its own, so that
        # signals to it do not reach the host.
        command = [sys.executable, "-P", "-m", "engine.sinks.process", self._name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._process.stdin is not None
        self._writer = QueuedWriter(self._process.stdin, "sink")

    def _how_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        """What the process has said, or its exit status."""
        assert process.stdout is not None and self._writer is not None
        with contextlib.suppress(OSError):  # a broken pipe, at once
            self._writer.close(0)
        os.set_blocking(process.stdout.fileno(), False)  # a child of its own may have the other end
        with process.stdout as stream:
            said = (stream.read(_MAX_ANSWER_BYTES) or b"").decode("utf-8", "replace")
        return said or f"its process has ended ({how_it_ended(process.returncode)})"
