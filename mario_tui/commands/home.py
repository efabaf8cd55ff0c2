"""`mario-tui`: the home screen."""

from __future__ import annotations

import argparse

from mario_tui.commands.options import Parser, add_read_only, add_run_dir, need_terminal


def home_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui", add_help=False, allow_abbrev=False)
    add_run_dir(parser)
    add_read_only(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = home_parser().parse_args(arguments)
    need_terminal("mario-tui --no-ui, or mario-tui runs")
    from mario_tui.app import MarioApp

    return MarioApp(run_dir=options.run_dir, read_only=options.read_only).run_in_terminal()
