"""The main functions of a run's processes: the leading one, which the host starts, and the members, which that starts.

Light on purpose: the module of the runner, and torch with it, is imported in the new process only.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.config.run_config import RunConfig
from engine.protocol.failures import describe
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.host_link import HostGoneError, HostLink
from engine.runtime.parent import end_with_parent
from engine.runtime.text import printable_stream, set_off


def main(run: Path, config: RunConfig, connection: Connection, screen: FrameMailbox, resume_from: Path | None) -> None:
    """Train; report a failure with its traceback. Ends quietly if the host is gone."""

    def train(link: HostLink) -> None:
        module = importlib.import_module(f"engine.runners.{config.runner}")
        runner = module.Runner(run, config, link, screen, resume_from)
        try:
            runner.train()
        finally:
            runner.close()

    _work(connection, train)


def member_main(work: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """What a process does that the leading one has started: `work(link, *arguments)`."""
    _work(connection, lambda link: work(link, *arguments))


def _work(connection: Connection, work: Callable[[HostLink], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # stopping is the host's decision and comes as a command
    end_with_parent()
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)  # both are the run's log
    link = HostLink(connection)
    try:
        work(link)
    except HostGoneError:
        os._exit(1)
    except BaseException as error:
        print(set_off(traceback.format_exc()), file=sys.stderr)
        with contextlib.suppress(HostGoneError):
            link.send(describe(error))
        sys.stderr.flush()
        os._exit(1)  # at once: an orderly exit waits for children, who may wait for this process
