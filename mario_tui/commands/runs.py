"""`mario-tui runs`: the list of runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

import msgspec

from engine.runs.annotation import read_annotation
from engine.runs.registry import list_records
from engine.runs.run import Run, RunRecord
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.data.standing import standing


def runs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui runs", description="List runs, newest first.")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON array")
    forms.add_argument("--names", action="store_true", help="print the names only, one per line")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = runs_parser().parse_args(arguments)
    records = list_records(existing(options.run_dir))
    runs = [run for run, _ in records]
    if options.json:
        print(json.dumps([record_as_dict(run, record) for run, record in records], indent=2))
        return 0
    if options.names:
        print("".join(f"{printable(run.name)}\n" for run in runs), end="")
        return 0
    if not runs:
        where = "" if options.run_dir is None else f" in {options.run_dir}"
        print(f"no runs{where} yet; start one with: mario-tui --game mario")
        return 0
    folders = [str(run.path.parent) for run in runs]
    if len(set(folders)) == 1:
        folders = [""] * len(runs)
    head = f"{'RUN':<32} {'STATE':<9} {'ENV STEPS':>12} {'OF':>12} {'RETURN':>8}"
    print(head + "  FOLDER" * any(folders))
    for (run, record), folder in zip(records, folders, strict=True):
        state = standing(record)
        if state == "damaged":
            print(printable(f"{record.name:<32} {state:<9} {run.path}: {record.reason}"))
            continue
        mean = "-" if record.mean_return is None else f"{record.mean_return:.0f}"
        line = f"{record.name:<32} {state:<9} {record.env_steps:>12,} {record.steps:>12,} {mean:>8}"
        print(printable(f"{line}  {folder}".rstrip()))
    return 0


def record_as_dict(run: Run, record: RunRecord) -> dict[str, Any]:
    """The record, the run's path and its annotation, for `--json`."""
    return {
        **msgspec.to_builtins(record),
        "path": str(run.path),
        **msgspec.to_builtins(read_annotation(run)),
    }
