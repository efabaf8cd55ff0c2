"""`mario-tui mcp`: a server of the Model Context Protocol, through which an assistant sees the user's runs."""

from __future__ import annotations

import argparse

from engine.errors import UserError
from engine.runtime.text import install_command
from mario_tui.commands.options import Parser, add_run_dir, existing


def mcp_parser() -> argparse.ArgumentParser:
    about = "A server of the Model Context Protocol on stdin and stdout, for the assistant that starts it."
    parser = Parser(prog="mario-tui mcp", description=about)
    parser.add_argument("--allow-start", action="store_true", help="also start, pause and stop runs in --run-dir")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = mcp_parser().parse_args(arguments)
    if options.allow_start and options.run_dir is None:
        raise UserError("--allow-start needs --run-dir DIR, the folder of the runs that are started")
    try:
        from mario_tui.extras.mcp.server import serve
    except ImportError as error:
        raise UserError(f"mario-tui mcp: {error}; install the SDK with: {install_command('mcp')}") from None
    return serve(existing(options.run_dir), options.allow_start)
