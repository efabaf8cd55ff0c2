"""How a command of the engine answers the front end: with packed messages on its standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from engine.protocol.failures import describe
from engine.protocol.framing import pack
from engine.protocol.message import Message

Send = Callable[[Message], None]


def take_stdout() -> Send:
    """A function that writes messages to standard output. Redirects all other output to stderr, so that libraries can't
    print between the messages."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(report: Message) -> None:
        stream.write(pack(report))
        stream.flush()

    return send


def answered(work: Callable[[], None], send: Send) -> int:
    """Do the work, which sends its results, and send why if it fails. Returns the exit status."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)  # the reader has gone; flushing at exit would fail again
    except Exception as error:
        send(describe(error))
        return 1
    return 0
