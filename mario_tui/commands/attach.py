"""`mario-tui attach`: the dashboard of a run, or charts of event files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from engine.errors import UserError
from engine.runs.lookup import WrongNameError, find_run
from engine.runs.run import Run, is_run
from mario_tui.commands.options import Parser, add_read_only, add_run_dir, existing, need_terminal


def attach_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui attach",
        description="Dashboard of a running or finished run, or charts of TensorBoard event files.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        default="latest",
        help="a run's name or path, latest (the default), an event file, or a folder of event files; a "
        "path that is not there yet is waited for",
    )
    add_run_dir(parser)
    add_read_only(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = attach_parser().parse_args(arguments)
    run_dir = existing(options.run_dir)
    charts = foreign_events(Path(options.run))
    run = None if charts else _run_unless_awaited(options.run, run_dir)
    charts = charts or (None if run else Path(options.run))
    need_terminal("mario-tui runs")
    from mario_tui.app import MarioApp

    app = MarioApp(open_run=run, run_dir=options.run_dir, read_only=options.read_only, charts=charts)
    return app.run_in_terminal()


def _run_unless_awaited(name: str, run_dir: str | None) -> Run | None:
    """The run with that name or path; None if there is nothing at what looks like a path: a program may be about to
    write event files there. Raises `UserError` otherwise."""
    try:
        return run_of(name, run_dir)
    except UserError:
        if os.path.lexists(name) or not (os.sep in name or name.startswith(".")):
            raise
        return None


def foreign_events(path: Path) -> Path | None:
    """The path if it is an event file or a folder of event files, but not a run."""
    if is_run(path) or not path.exists():
        return None
    from mario_tui.data.event_files import event_files, problem_of  # slow: it imports TensorBoard

    found = bool(event_files(path)) if path.is_dir() else not problem_of(path)
    return path if found else None


def run_of(name: str, run_dir: str | None) -> Run:
    """The run with that name or path. Raises `UserError` that tells what is missing from an existing path."""
    try:
        return find_run(name, run_dir)
    except UserError as error:
        path = Path(name)
        if isinstance(error, WrongNameError) or is_run(path):
            raise
        if path.is_dir():
            raise UserError(f"{name}: the folder contains neither a run nor event files") from None
        if path.is_file():
            from mario_tui.data.event_files import problem_of

            raise UserError(f"{name}: {problem_of(path)}") from None
        raise
