"""`mario-tui alerts`: what the hosts of runs have found to be wrong, from the recordings in the runs' folders.

Only this program runs `--alert-command`, and nothing that a run, a configuration or a plan says becomes a part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime

from engine.errors import UserError
from engine.protocol.json_lines import line_of
from engine.protocol.messages import Alert
from engine.protocol.outcome import Outcome
from engine.runs.lookup import find_run_or_sweep, runs_of
from engine.runs.run import Run
from engine.runs.sweep import Sweep
from engine.runtime.files import open_to_others
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.data.feed import recorded_state
from mario_tui.data.format import moment
from mario_tui.data.settings import load_settings, settings_path

_LOOK_S = 1.0
_COMMAND_S = 60.0
"""Seconds after which the command is killed."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def alerts_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui alerts",
        description="Print the alerts of a run, or of the runs of a sweep, oldest first. "
        "--alerts, an option of runs, sets their limits.",
    )
    parser.add_argument("run", metavar="RUN|SWEEP", help="name or path of a run or a sweep, or latest")
    parser.add_argument(
        "--since", type=_time, default=0.0, metavar="T",
        help="only those since then: 30m, 2h or 1d ago, a date such as 2026-11-29T14:00, or Unix time",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--follow", action="store_true", help="also those that come from now on, until all has ended")
    parser.add_argument(
        "--alert-command", metavar="CMD",
        help="with --follow: a command of the shell, which gets each new alert (with --since each since then) as JSON "
        "on standard input (default: alert_command in the settings)",
    )  # fmt: skip
    add_run_dir(parser)
    return parser


def _time(text: str) -> float:
    """Unix time. Raises `UserError`."""
    with contextlib.suppress(ValueError):
        return float(text)
    if ago := re.fullmatch(r"(\d+)([smhd])", text):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UserError(
            f"--since must be 30m, 2h, 1d, a date such as 2026-11-29T14:00 or Unix time, got {text!r}"
        ) from None


def run(arguments: list[str]) -> int:
    options = alerts_parser().parse_args(arguments)
    if options.alert_command is not None and not options.follow:
        raise UserError("--alert-command needs --follow")
    command = (options.alert_command or _own_command()) if options.follow else ""
    found, since = find_run_or_sweep(options.run, existing(options.run_dir)), options.since
    commanded_since = since or time.time()
    for alert in _alerts(found, options.follow):
        if alert.at < since:
            continue
        line = line_of(alert, Outcome()) or ""
        print(line if options.json else _shown(alert), flush=True)
        if command and alert.at >= commanded_since:
            _run_command(command, line)
    return 0


def _own_command() -> str:
    """The command in the settings. Raises `UserError` if others may have written it."""
    command = load_settings()[0].alert_command
    if command and (flaw := open_to_others(settings_path())):
        raise UserError(f"{settings_path()}: alert_command would run, and {flaw}")
    return command


def _alerts(found: Run | Sweep, follow: bool) -> Iterator[Alert]:
    """Alerts in the order of time; each look brings those that are new."""
    seen, read_at = set[Alert](), dict[str, int]()
    while True:
        runs = runs_of(found)
        goes_on = follow and (any(run.is_alive() for run in runs) or (isinstance(found, Sweep) and found.queue_pid()))
        news = list[Alert]()
        for run in runs:
            with contextlib.suppress(OSError):  # it has no recording yet
                written = run.history_path.stat().st_mtime_ns
                if read_at.get(run.name) != written:
                    read_at[run.name] = written
                    news += [event for event in recorded_state(run).events.others() if isinstance(event, Alert)]
        yield from sorted({*news} - seen, key=lambda alert: alert.at)
        seen.update(news)
        if not goes_on:
            return
        time.sleep(_LOOK_S)


def _shown(alert: Alert) -> str:
    return printable(f"{moment(alert.at)}  {alert.run} at {alert.env_steps:,}: {alert.text}")


def _run_command(command: str, line: str) -> None:
    try:
        status = subprocess.run(["/bin/sh", "-c", command], input=f"{line}\n".encode(), timeout=_COMMAND_S).returncode
        problem = f"ended with status {status}" if status else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"failed: {error}"
    if problem:
        print(printable(f"mario-tui: warning: --alert-command {problem}"), file=sys.stderr, flush=True)
