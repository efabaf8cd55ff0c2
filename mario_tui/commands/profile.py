"""`mario-tui profile`: where a run spends its time."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.config.command_line import add_arguments
from engine.config.games import GAMES
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS
from mario_tui.commands.options import Parser, chosen, whole, within

_DURATION_S = (2, 3600)


def profile_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Options of the command itself and those of a run; the help covers `game` and `runner`."""
    parser = Parser(
        prog="mario-tui profile",
        usage="mario-tui profile [options of a run] [--duration S] [--report-file FILE] [--trace FILE.json] [--json]",
        description="Measure where a run spends its time, what limits it, and which options make it faster.",
        allow_abbrev=False,
    )
    group = parser.add_argument_group("profile")
    group.add_argument(
        "--duration", type=within("--duration", *_DURATION_S), default=30.0, metavar="S",
        help="seconds of learning; the second half is measured (default: 30; with its trials, three minutes in all)",
    )  # fmt: skip
    group.add_argument(
        "--trials", type=whole("--trials", 0, 100), default=6, metavar="N",
        help="alternative options to try against the bottleneck, each in a run of its own; 0: none (default: 6)",
    )  # fmt: skip
    group.add_argument(
        "--trial-duration", type=within("--trial-duration", *_DURATION_S), metavar="S",
        help="seconds of learning per trial (default: a third of --duration, at least 6)",
    )  # fmt: skip
    group.add_argument(
        "--report-file",
        type=Path,
        metavar="FILE",
        help="where to write the report, in Markdown (default: print it, and write profile-RUN.md)",
    )
    group.add_argument(
        "--trace", type=Path, metavar="FILE.json", help="write a two-second trace for https://ui.perfetto.dev"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object instead of the report")
    group.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from a file; flags override it")
    group.add_argument("--preset", metavar="NAME", help="start from a known setup; file and flags override it")
    add_arguments(parser, game, runner)
    return parser


def run(arguments: list[str]) -> int:
    game, runner = chosen(arguments, "--game", GAMES), chosen(arguments, "--runner", RUNNERS)
    options = profile_parser(game, runner).parse_args(arguments)
    from mario_tui.profile import profile

    return profile(options)
