"""`mario-tui runs`: the list of runs."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len

from engine.errors import UserError
from engine.protocol.json_lines import as_fields, interval_keys
from engine.protocol.messages import Evaluation
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.results import FinalResult, Interval
from engine.runs.registry import list_records
from engine.runs.run import Run, RunRecord, read_annotation
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.data.differences import matches, options_of, text_of, words_of
from mario_tui.data.format import fitted, judged_best, judged_number, judged_result, number, outcome_of_record, within
from mario_tui.data.run_status import RunStatus

_ABOUT = (
    "List runs, newest first. RETURN: mean of the last episodes; BEST: the best evaluation, which is partly luck; "
    "RESULT: a finished run over fresh episodes, with its 95 % interval. The last two are what the game is judged by: "
    "cleared episodes, a score, or the mean return."
)

_STATE = 10
"""Cells of a state, with the space before it."""
_NAME = 25
"""Cells of a usual name, which are left to longer ones."""
_LEAST = 8
"""Cells below which nothing is left of a text that is cut."""


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
    _print_table(records, folders, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    return 0


def _print_table(records: Sequence[tuple[Run, RunRecord]], folders: Sequence[str], room: int | None) -> None:
    """In a terminal of `room` columns, less important numbers, the middle of names and the ends of lines are left
    out."""
    results, bests = list[str](), list[str]()
    for _, record in records:
        outcome = outcome_of_record(record)
        shown = judged_number(outcome)
        results.append("" if record.result is None else within(judged_result(outcome, record.result), shown))
        bests.append("–" if record.best is None else shown(judged_best(outcome, record.best)))
    numbers = {"ENV STEPS": 12, "OF": 12, "RETURN": 8, "BEST": 8}
    if any(results):
        numbers["RESULT"] = 1 + max(map(len, ("RESULT", *results)))
    width = max(_NAME, *(cell_len(printable(record.name)) for _, record in records))
    for name in ("OF", "RETURN", "ENV STEPS", *["BEST"] * any(results)):
        if room is not None and _NAME + _STATE + sum(numbers.values()) + len(numbers) > room:
            del numbers[name]
    taken = _STATE + sum(numbers.values()) + len(numbers)
    width = width if room is None else max(_LEAST, min(width, room - taken))
    left = None if room is None else room - width - taken - 2

    def line(name: str, state: str, cells: Iterable[str], end: str) -> str:
        end = end if left is None or cell_len(end) <= left else fitted(end, left) if left >= _LEAST else ""
        return f"{fitted(printable(name), width)} {state:<{_STATE - 1}} {' '.join(cells)}  {printable(end)}".rstrip()

    def cell(name: str, text: str) -> str:
        return f" {text}".ljust(numbers[name]) if name == "RESULT" else text.rjust(numbers[name])

    print(line("RUN", "STATE", (cell(name, name) for name in numbers), "FOLDER" * any(folders)))
    for (run, record), folder, result, best in zip(records, folders, results, bests, strict=True):
        status = RunStatus.of_record(record)
        if status is RunStatus.DAMAGED:
            text = printable(f"{run.path}: {record.reason}")
            cells = [text if room is None else fitted(text, max(0, room - width - _STATE - 1)).rstrip()]
        else:
            values = {
                "ENV STEPS": f"{record.env_steps:,}", "OF": f"{record.steps:,}" if record.steps else "–",
                "RETURN": number(record.mean_return), "BEST": best, "RESULT": result,
            }  # fmt: skip
            cells = [cell(name, values[name]) for name in numbers]
        on = f"on {record.elsewhere}" if record.elsewhere else ""
        alert = f"alert: {record.alert}" if record.alert else ""
        print(line(record.name, status, cells, "  ".join(filter(None, (alert, folder, on)))))


def _matches(words: Sequence[str], run: Run, record: RunRecord) -> bool:
    text = f"{text_of(run, record, read_annotation(run))} {RunStatus.of_record(record)}" if words else ""
    return matches(words, text, lambda: options_of(run))


def _evaluations(run: Run) -> list[dict[str, Any]]:
    """The evaluations that the run has recorded, in their order, with the fields of an `evaluation` in JSON lines."""
    from mario_tui.data.feed import recorded_state

    state = recorded_state(run)
    outcome = Outcome() if state.hello is None else state.hello.outcome
    return [as_fields(event, outcome) for event in state.events.others() if isinstance(event, Evaluation)]


_UNKNOWN = Interval(math.nan, math.nan, math.nan)
"""NaN becomes null."""


def result_fields(result: FinalResult) -> dict[str, Any]:
    """A run's result for `--json`, with the names of `final_evaluation` in JSON lines."""
    known = {"clear_rate": result.clear_rate, "mean_return": result.mean_return, **mean_keys(result.results)}
    return {
        "policy_env_steps": result.env_steps, "episodes": result.episodes,
        "clears": None if result.clear_rate is None else result.clears,
        **interval_keys({name: found or _UNKNOWN for name, found in known.items()}),
        "starts": result.starts, "note": result.note,
    }  # fmt: skip


def record_as_dict(run: Run, record: RunRecord) -> dict[str, Any]:
    """The record, the run's path, its options (null if they can't be read) and its annotation, for `--json`."""
    fields = msgspec.to_builtins(record)
    if record.best is not None:
        fields["best"].pop("results", None)
        fields["best"] |= mean_keys(record.best.results)
        with contextlib.suppress(UserError):
            fields["best"] |= {} if run.description().outcome.goal else {"clears": None}
    if record.result is not None:
        fields["result"] = result_fields(record.result)
    return {
        **fields,
        "state": record.told_state,
        "path": str(run.path),
        "options": options_of(run) or None,
        **msgspec.to_builtins(read_annotation(run)),
    }
