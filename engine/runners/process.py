"""Main functions of a run's processes: the host starts the coordinator, which starts the members.

Kept light: the runner's module, and torch with it, is imported only in the new process.
"""

from __future__ import annotations

import faulthandler
import importlib
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config.run_config import RunConfig
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.message_queue import CommandQueue, ReportQueue
from engine.runners.parent_link import ParentLink
from engine.runtime.parent import end_with_parent
from engine.runtime.text import printable_stream
from engine.runtime.threads import use_at_most


def main(
    run: Path,
    config: RunConfig,
    commands: CommandQueue,
    reports: ReportQueue,
    mailbox: FrameMailbox,
    resume_from: Path | None,
) -> None:
    """Train; report a failure with its traceback. Exits silently if the host is gone."""

    def train(link: ParentLink) -> None:
        module = importlib.import_module(f"engine.runners.{config.runner}")
        runner = module.Runner(run, config, link, mailbox, resume_from)
        try:
            runner.train()
        finally:
            runner.close()

    use_at_most(config.threads)  # members inherit it
    commands.only_read()
    _work(train, reports, commands)


def member_main(work: Callable[..., None], reports: ReportQueue, *arguments: Any) -> None:
    """Run a member: `work(link, *arguments)`."""
    _work(lambda link: work(link, *arguments), reports)


class _Forwarding(logging.Handler):
    """Sends what this process's modules log, such as the failure of an environment, to the run's log."""

    def __init__(self, link: ParentLink) -> None:
        super().__init__(logging.WARNING)
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.log(record.getMessage(), "warning")


def _work(work: Callable[[ParentLink], None], reports: ReportQueue, commands: CommandQueue | None = None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the host decides when to stop, and sends a command
    end_with_parent()
    faulthandler.enable(all_threads=False)  # run.log tells the line of Python if native code crashes
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)  # both go to run.log
    reports.only_write()
    link = ParentLink(reports, commands)
    logging.getLogger("engine").addHandler(_Forwarding(link))
    try:
        work(link)
    except BaseException as error:
        link.fail(error)
