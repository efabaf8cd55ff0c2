"""A sink of another package, or for an experiment tracker: the host's side of it, and its process.

It runs in a process of its own, `python -m engine.sinks.process NAME`: the host imports nothing of it, and never waits
for it. The process reads messages (`engine.protocol.sinks`) from standard input and passes them to the sink until the
stream ends. Whatever the sink prints goes to the run's log; if it fails, its traceback does too, and the host gets the
reason on standard output.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.config.sinks import POLICY, TRACKERS, check_sinks, place_of
from engine.protocol.framing import decode_sink_event, failure_of, pack, read_message
from engine.protocol.messages import Episode, Progress
from engine.protocol.sinks import Begin, SinkEvent
from engine.runtime.processes import ENDING, continued_with_parent, disregard, end_with_stdin, held, how_it_ended
from engine.runtime.text import printable_stream, set_off, shortened
from engine.sinks.sink import QueuedSink, QueuedWriter, Sink

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
        with held():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._process.stdin is not None
        self._writer = QueuedWriter(self._process.stdin, "sink")

    def _how_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        """Return what the process has said, or its exit status."""
        assert process.stdout is not None and self._writer is not None
        with contextlib.suppress(OSError):  # a broken pipe, at once
            self._writer.close(0)
        os.set_blocking(process.stdout.fileno(), False)  # a child of its own may have the other end
        with process.stdout as stream:
            said = (stream.read(_MAX_ANSWER_BYTES) or b"").decode("utf-8", "replace")
        return said or f"its process has ended ({how_it_ended(process.returncode)})"


END_S = 20.0
"""Seconds that a sink has, after the end of the run, to take what it was sent and to close."""


def main(name: str) -> int:
    feed, answer = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = printable_stream(sys.stderr)
    disregard(*ENDING)  # the host decides when to end
    if name in TRACKERS:  # the services that these start have to send what is left as well
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
    continued_with_parent()
    end_with_stdin(lambda: _until_hung_up(feed), timeout_s=END_S)
    try:
        check_sinks([name])
        with contextlib.closing(_made(name)) as sink:
            _pass_on(feed, sink)
    except BaseException as error:
        failure = failure_of(error)
        if failure.traceback:
            print(set_off(failure.traceback), file=sys.stderr, flush=True)
        os.write(answer, shortened(failure.reason).encode())
        os._exit(1)  # at once: a thread of the sink's could keep it alive
    return 0


def _made(name: str) -> Sink:
    sink: Any = pkgutil.resolve_name(place_of(name))()
    if name in TRACKERS and name.endswith(POLICY):
        sink.keeps_policy = True
    return sink


def _pass_on(feed: int, sink: Sink) -> None:
    """Pass messages on until the host has no more."""
    with os.fdopen(feed, "rb", closefd=False) as stream, contextlib.suppress(EOFError):
        while True:
            sink.take(read_message(stream, decode_sink_event))


def _until_hung_up(feed: int) -> None:
    """Wait until the host has closed the stream, whether or not it has been read to its end."""
    poll = select.poll()
    poll.register(feed, 0)  # hang-ups alone
    poll.poll()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
