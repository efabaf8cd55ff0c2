"""`python -m engine.sinks.process NAME`: the process of a sink of another package, or for an experiment tracker.

Reads messages (`engine.protocol.sinks`) from standard input and passes them to the sink until the stream ends. Whatever
the sink prints goes to the run's log; if it fails, its traceback does too, and the host gets the reason on standard
output.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import select
import signal
import sys
from pathlib import Path

from engine.config.sinks import POLICY, check_sinks, place_of
from engine.protocol.failures import describe
from engine.protocol.framing import decode_sink_event, read_message
from engine.runtime.parent import continued_with_parent, end_with_stdin
from engine.runtime.text import printable_stream, set_off, shortened
from engine.sinks.sink import Sink
from engine.sinks.trackers import PolicySink

END_S = 20.0
"""Seconds that a sink has, after the end of the run, to take what it was sent and to close."""


def main(name: str) -> int:
    feed, answer = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = printable_stream(sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the host decides when to end
    continued_with_parent()
    end_with_stdin(lambda: _until_hung_up(feed), timeout_s=END_S)
    try:
        check_sinks([name])
        with contextlib.closing(_made(name)) as sink:
            _pass_on(feed, sink)
    except BaseException as error:
        failure = describe(error)
        if failure.traceback:
            print(set_off(failure.traceback), file=sys.stderr, flush=True)
        os.write(answer, shortened(failure.reason).encode())
        os._exit(1)  # at once: a thread of the sink's could keep it alive
    return 0


def _made(name: str) -> Sink:
    sink: Sink = pkgutil.resolve_name(place_of(name))()
    if isinstance(sink, PolicySink):
        sink.keeps_policy = name.endswith(POLICY)
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
