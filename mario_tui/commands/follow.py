"""`mario-tui follow` and `logs`: what a run that is already there tells, for pipes and scripts. Neither stops it."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing

from engine.errors import UserError
from engine.protocol.json_lines import EVENT_NAMES
from engine.runs.run import Run
from mario_tui.commands.attach import run_of
from mario_tui.commands.options import Parser, add_log_format, add_run_dir, existing
from mario_tui.data.run_log import RunLog

_ABOUT = {
    "follow": "Print what --no-ui prints, of a run that runs or has ended, until its end; then exit with its status. "
    "Ctrl-C ends this command alone.",
    "logs": "Print run.log, which also has what the run's processes print.",
}
_LOOK_S = 0.2


def follow_parser(name: str) -> argparse.ArgumentParser:
    """Parser of the command `name`."""
    parser = Parser(prog=f"mario-tui {name}", description=_ABOUT[name])
    parser.add_argument("run", metavar="RUN", help="a run's name or path, or latest")
    if name == "follow":
        parser.add_argument("--from-now", action="store_true", help="leave out what happened before")
        add_log_format(parser)
    else:
        parser.add_argument(
            "--follow", action="store_true", help="also what is written from now on, until the run ends"
        )
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Run the command that the first of `arguments` names."""
    name, *others = arguments
    options = follow_parser(name).parse_args(others)
    found = run_of(options.run, existing(options.run_dir))
    if name == "logs":
        return _print_log(found, options.follow)
    if options.log_events and options.log_format != "json":
        raise UserError("--log-events needs --log-format json")
    from mario_tui.headless import follow

    return follow(found, options.log_format, options.log_events or EVENT_NAMES, show_past=not options.from_now)


def _print_log(run: Run, follow: bool) -> int:
    with closing(RunLog(run)) as log:
        while True:
            goes_on = follow and run.is_alive()  # before the last look
            while text := log.news():
                sys.stdout.write(text)
            sys.stdout.flush()
            if not goes_on:
                return 0
            time.sleep(_LOOK_S)
