"""`mario-tui serve`: the terminal UI in a browser."""

from __future__ import annotations

import argparse

from mario_tui.commands.options import Parser, add_read_only, add_run_dir, whole


def serve_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui serve",
        description="The terminal UI in a browser. The printed address contains a token that grants full access to "
        "your runs. By default the server listens on this machine only; from another one, use "
        "ssh -L 8000:localhost:8000 MACHINE.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=whole("--port", 0, 65_535), default=8000, metavar="N", help="0: any free port (default: 8000)"
    )
    add_run_dir(parser)
    add_read_only(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = serve_parser().parse_args(arguments)
    from mario_tui.extras.serve.server import serve

    return serve(options.host, options.port, options.run_dir, read_only=options.read_only)
