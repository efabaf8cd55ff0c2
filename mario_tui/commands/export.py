"""`mario-tui export`: the scalars of a run, for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.errors import UserError
from mario_tui.commands.attach import foreign_events, run_of
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.launch import expanded

_FORMATS = ("csv", "jsonl", "parquet")


def export_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui export",
        description="Scalars of a run, or of TensorBoard event files, as a table. It has one row per point: run, tag, "
        "step, wall_time (Unix time), value.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        default="latest",
        help="a run's name or path, latest (the default), an event file, or a folder of event files",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="a .csv, .jsonl or .parquet file; -: standard output (default: RUN.csv in the current folder)",
    )
    parser.add_argument("--format", choices=_FORMATS, help="format (default: by the suffix of FILE, or csv)")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="GLOB",
        help="only tags that match, such as 'charts/*'; may be given several times",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = export_parser().parse_args(arguments)
    run_dir = existing(options.run_dir)
    path = foreign_events(Path(options.run)) or run_of(options.run, run_dir).path
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    output, format = _target(options.output, options.format, folder.name)
    from mario_tui.export import Points, export

    return export(Points(path, folder.name, options.tag), output, format, force=options.force)


def _target(name: str | None, format: str | None, run: str) -> tuple[Path | None, str]:
    """The file (None: standard output) and the format."""
    if name is None:
        return Path(f"{run}.{format or 'csv'}"), format or "csv"
    if name == "-":
        return None, format or "csv"
    path = expanded(name)
    format = format or path.suffix.removeprefix(".")
    if format not in _FORMATS:
        raise UserError(f"--output must end in .csv, .jsonl or .parquet, or have a --format, got {name!r}")
    return path, format
