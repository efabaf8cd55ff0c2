"""`mario-tui`, the home screen; and `mario-tui attach`, the dashboard of a run or charts of event files."""

from __future__ import annotations

import argparse
import os
import shlex
from functools import partial
from pathlib import Path
from types import ModuleType

from engine.errors import UserError
from engine.runs.lookup import WrongNameError, find_run
from engine.runs.marks import is_run
from engine.runs.run import Run
from mario_tui.commands.options import Parser, add_read_only, add_run_dir, existing, need_terminal
from mario_tui.features import viewers


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
    viewer, path = viewer_of(Path(options.run)), Path(options.run)
    run = _run_unless_awaited(options.run, run_dir) if viewer is None else None
    if run is None:
        viewer = viewer or viewers()[0]  # which waits
    need_terminal("mario-tui runs" if run is None else f"mario-tui follow {shlex.quote(options.run)}")
    from mario_tui.app import MarioApp

    open_screen = None if viewer is None else partial(viewer.screen, path)
    app = MarioApp(open_run=run, run_dir=options.run_dir, read_only=options.read_only, open_screen=open_screen)
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


def viewer_of(path: Path) -> ModuleType | None:
    """The viewer that shows what is at a path. None if that is a run, or nothing that can be shown."""
    if is_run(path) or not path.exists():
        return None
    return next((viewer for viewer in viewers() if viewer.shows(path)), None)


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
            raise UserError(f"{name}: {viewers()[0].problem_of(path)}") from None
        raise


def home_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui", add_help=False, allow_abbrev=False)
    add_run_dir(parser)
    add_read_only(parser)
    return parser


def run_home(arguments: list[str]) -> int:
    options = home_parser().parse_args(arguments)
    need_terminal("mario-tui --no-ui, or mario-tui runs")
    from mario_tui.app import MarioApp

    return MarioApp(run_dir=options.run_dir, read_only=options.read_only).run_in_terminal()
