"""`python -m engine.host RUN`: serve one run, as `engine.host.supervisor` describes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

from engine.console.compiler import code_cache
from engine.errors import UserError
from engine.host.runner_link import ReportingLoop
from engine.host.supervisor import Host
from engine.runs.marks import check_own
from engine.runs.registry import discard_run
from engine.runs.run import HeldRun
from engine.runtime.text import printable, printable_stream, set_off


class _OneLine(logging.Formatter):
    """Each message is one line, whatever it quotes; a traceback is indented behind a bar."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, info: Any) -> str:
        return set_off(super().formatException(info))


def _write_printable_lines() -> None:
    """Make everything written to stderr, which is run.log, safe to show in a terminal."""
    sys.stderr = printable_stream(sys.stderr)
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main(arguments: list[str] | None = None) -> int:
    """`python -m engine.host RUN [--resume CHECKPOINT] [--foreground] [--keep-refused] [--lock DESCRIPTOR]
    [--note LEVEL TEXT] ... [--loop READ WRITE]`

    `--keep-refused`: keep the folder of a new run whose options turn out not to work. `--lock`: an inherited file
    descriptor that holds the run's lock. `--note`: a line for the run's log. `--loop`: inherited file descriptors, if
    the parent process trains: of its reports, and of commands to it.
    """
    parser = argparse.ArgumentParser(prog="engine.host")
    parser.add_argument("run", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--keep-refused", action="store_true")
    parser.add_argument("--lock", type=int)
    parser.add_argument("--note", nargs=2, action="append", default=[])
    parser.add_argument("--loop", nargs=2, type=int)
    options = parser.parse_args(arguments)
    _write_printable_lines()
    try:
        run = HeldRun(options.run)
        check_own(run.path)
        with run.lock() if options.lock is None else os.fdopen(options.lock, "rb"):
            notes = [(level, text) for level, text in options.note]
            # Looked for here, and inherited by the processes of the run.
            notes += [("warning", code_cache.notice)] if code_cache.notice else []
            loop = None if options.loop is None else ReportingLoop(*options.loop)
            host = Host(run, options.resume, options.foreground, notes, loop)
            status = asyncio.run(host.serve())
        if host.refused and not options.keep_refused:
            discard_run(run)
        return status
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
