"""What the host starts: the main function of a runner process.

Light on purpose: the module of the runner, and torch with it, is imported in the new process only.
"""

from __future__ import annotations

import importlib
import signal
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from engine.config import RunConfig
from engine.errors import UserError
from engine.messages import Failed
from engine.runners.channel import Channel, HostGoneError, SharedScreen


def main(run: Path, config: RunConfig, connection: Connection, screen: SharedScreen, resume_from: Path | None) -> None:
    """Train; report a failure with its traceback. Ends quietly if the host is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # stopping is the host's decision and comes as a command
    channel = Channel(connection)
    try:
        runner = importlib.import_module(f"engine.runners.{config.runner}").Runner(
            run, config, channel, screen, resume_from
        )
        try:
            runner.train()
        finally:
            runner.close()
    except HostGoneError:
        raise SystemExit(1) from None
    except BaseException as error:
        traceback.print_exc()
        channel.send(describe(error))
        raise SystemExit(1) from None


def describe(error: BaseException) -> Failed:
    """A failure as a message."""
    usage = isinstance(error, UserError)
    reason = str(error) if usage else f"{type(error).__name__}: {error}".splitlines()[0]
    return Failed(reason=reason, traceback=traceback.format_exc(), log_path="", checkpoint=None, usage=usage)
