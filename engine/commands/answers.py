"""What commands of the engine have in common: the policy that they are given, and how they answer the front end, with
packed messages on their standard output."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.config.game import Game, game_of
from engine.protocol.commands import Message
from engine.protocol.framing import failure_of, pack
from engine.protocol.messages import Failed, Log
from engine.protocol.results import Order
from engine.runs.checkpoints import policy_metadata
from engine.runs.marks import check_code
from engine.runtime.threads import user_calls

OrderT = TypeVar("OrderT", bound=Order)
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


class _Warnings(logging.Handler):
    """Sends what modules of the engine warn of, such as the failure of an environment."""

    def __init__(self, send: Send) -> None:
        super().__init__(logging.WARNING)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(Log(at=time.time(), level="warning", text=record.getMessage()))


def send_warnings(send: Send) -> None:
    """Send warnings of the engine's modules from now on, as `Log`; and before this process ends because a user's code
    hangs, where it does."""

    def hangs(text: str) -> None:
        send(Failed(reason=text))
        os._exit(1)

    user_calls.fail = hangs
    logging.getLogger("engine").addHandler(_Warnings(send))


def answered(work: Callable[[], None], send: Send) -> int:
    """Do the work, which sends its results, and send why if it fails. Returns the exit status."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)  # the reader has gone; flushing at exit would fail again
    except Exception as error:
        send(failure_of(error))
        return 1
    return 0


def order_of(kind: type[OrderT]) -> OrderT:
    """The order with which this process was started."""
    return msgspec.convert(json.loads(sys.argv[1]), kind)


def chosen_policy(path: Path, own: Mapping[str, Any]) -> tuple[dict[str, Any], Game]:
    """Metadata of a policy file, and its game. The code that they and the given options `own` of the game name may be
    imported. Raises `UserError`, also if the user has not chosen that code."""
    metadata = policy_metadata(path)
    check_code(metadata, own, path, "the policy")
    return metadata, game_of(metadata["game"])
