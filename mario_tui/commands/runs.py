"""`mario-tui runs`: the list of runs."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from engine.errors import UserError
from engine.protocol.json_lines import as_fields
from engine.protocol.messages import Evaluation
from engine.protocol.outcome import Outcome, mean_keys
from engine.runs.annotation import read_annotation
from engine.runs.registry import list_records
from engine.runs.run import Run, RunRecord
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.data.format import number
from mario_tui.data.run_filter import matches, options_of, text_of, words_of
from mario_tui.data.run_status import RunStatus

_ABOUT = "List runs, newest first. RETURN: mean of the last episodes; BEST: that of the best evaluation."


def runs_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui runs", description=_ABOUT)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON array")
    forms.add_argument("--names", action="store_true", help="print the names only, one per line")
    parser.add_argument("--evaluations", action="store_true",
                        help="with --json: also the evaluations of each run, which takes longer")  # fmt: skip
    parser.add_argument("--filter", action="append", default=[], metavar="WORDS",
                        help="only runs that match all words, as on the home screen: a name, a state, #tag, n-step=3; "
                             "repeatable")  # fmt: skip
    add_run_dir(parser)
    return parser


def _joined(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """`--filter --no-amp` as `--filter=--no-amp`: argparse would take the word for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--filter" and argument not in parser._option_string_actions:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def run(arguments: list[str]) -> int:
    parser = runs_parser()
    options = parser.parse_args(_joined(arguments, parser))
    if options.evaluations and not options.json:
        raise UserError("--evaluations needs --json")
    words = words_of(" ".join(options.filter))
    records = [each for each in list_records(existing(options.run_dir)) if _matches(words, *each)]
    runs = [run for run, _ in records]
    if options.json:
        listed = [record_as_dict(run, record) for run, record in records]
        if options.evaluations:
            listed = [each | {"evaluations": _evaluations(run)} for each, run in zip(listed, runs, strict=True)]
        print(json.dumps(msgspec.json.decode(msgspec.json.encode(listed)), indent=2))  # NaN becomes null
        return 0
    if options.names:
        print("".join(f"{printable(run.name)}\n" for run in runs), end="")
        return 0
    if not runs and words:
        print(f"no run matches {' '.join(words)!r}")
        return 0
    if not runs:
        where, there = "", ""
        if options.run_dir is not None:
            where, there = f" in {options.run_dir}", f" --run-dir {shlex.quote(str(options.run_dir))}"
        print(f"no runs{where} yet; start one with: mario-tui --game mario{there}")
        return 0
    folders = [str(run.path.parent) for run in runs]
    if len(set(folders)) == 1:
        folders = [""] * len(runs)
    width = max(25, *(len(printable(record.name)) for _, record in records))
    head = f"{'RUN':<{width}} {'STATE':<9} {'ENV STEPS':>12} {'OF':>12} {'RETURN':>8} {'BEST':>8}"
    print(head + "  FOLDER" * any(folders))
    for (run, record), folder in zip(records, folders, strict=True):
        status = RunStatus.of_record(record)
        if status is RunStatus.DAMAGED:
            print(printable(f"{record.name:<{width}} {status:<9} {run.path}: {record.reason}"))
            continue
        best = None if record.best is None else record.best.mean_return
        of = f"{record.steps:,}" if record.steps else "–"
        line = (
            f"{record.name:<{width}} {status:<9} {record.env_steps:>12,} {of:>12} "
            f"{number(record.mean_return):>8} {number(best):>8}"
        )
        on = f"  on {record.elsewhere}" if record.elsewhere else ""
        print(printable(f"{line}  {folder}".rstrip() + on))
    return 0


def _matches(words: Sequence[str], run: Run, record: RunRecord) -> bool:
    text = f"{text_of(run, record, read_annotation(run))} {RunStatus.of_record(record)}" if words else ""
    return matches(words, text, lambda: options_of(run))


def _evaluations(run: Run) -> list[dict[str, Any]]:
    """The evaluations that the run has recorded, in their order, with the fields of an `evaluation` in JSON lines."""
    from mario_tui.data.recorded import recorded_state

    state = recorded_state(run)
    outcome = Outcome() if state.hello is None else state.hello.outcome
    return [as_fields(event, outcome) for event in state.events.others() if isinstance(event, Evaluation)]


def record_as_dict(run: Run, record: RunRecord) -> dict[str, Any]:
    """The record, the run's path, its options (null if they can't be read) and its annotation, for `--json`."""
    fields = msgspec.to_builtins(record)
    if record.best is not None:
        fields["best"].pop("results", None)
        fields["best"] |= mean_keys(record.best.means)
    return {
        **fields,
        "state": record.told_state,
        "path": str(run.path),
        "options": options_of(run) or None,
        **msgspec.to_builtins(read_annotation(run)),
    }
