"""`mario-tui sweep status`: what the runs of a sweep have reached, as a table, CSV, Markdown or JSON."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.errors import UserError
from engine.runs.lookup import NO_SWEEPS, find_sweep
from engine.runs.sweep import Sweep, SweepPlan, list_sweeps
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.data.format import counted, duration, shortened, within
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import what_it_waits_for
from mario_tui.extras.sweeps.results import (
    SHORTER,
    MemberResult,
    SettingResult,
    Shown,
    as_csv,
    as_markdown,
    better_text,
    commands_of,
    explained,
    failed_lines,
    how_to_go_on,
    is_done,
    member_row,
    most_steps,
    results_of,
    row,
    shown,
    shown_setting,
    state_of_sweep,
    states_of,
    states_text,
)

_NARROW = 40
"""Characters of a setting that stay on one line."""
_REASON = 60, 24
"""Characters of a reason, where there is room and where there is little."""
_LEAST_PATH = 12


def run(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep status", description="What the runs of sweeps have reached.")
    parser.add_argument("sweep", nargs="?", help="name or folder, or latest (default: all sweeps)")
    parser.add_argument(
        "--sort", choices=("given", "result", "best", "last"), default="given", help="order (default: as given)"
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--runs", action="store_true", help="a line for each run")
    forms.add_argument("--csv", action="store_true", help="the runs as CSV")
    forms.add_argument("--markdown", action="store_true", help="a table for a paper or a pull request")
    forms.add_argument("--json", action="store_true", help="print JSON")
    add_run_dir(parser, "sweeps")
    options = parser.parse_args(arguments)
    run_dir = existing(options.run_dir)
    if options.sweep is None:
        if options.runs or options.csv or options.markdown or options.sort != "given":
            raise UserError("--runs, --csv, --markdown and --sort need a sweep: its name or folder, or latest")
        return _list(run_dir, as_json=options.json)
    sweep = find_sweep(options.sweep, run_dir)
    plan = sweep.plan()
    results = results_of(sweep, plan)
    first = results[0] if results else None
    if options.sort != "given":
        results.sort(key=lambda each: _mean(each, options.sort), reverse=True)
    members = [member for result in results for member in result.members]
    if options.json:
        settings = [row(each, first, most_steps(results)) for each in results]
        print(json.dumps({**summary(sweep, plan, results), "settings": settings,
                          "runs": [_run(sweep, each) for each in members]}, indent=2))  # fmt: skip
    elif options.csv:
        print(printable(as_csv([member_row(each) for each in members]), lines=True) if members else "", end="")
    elif options.markdown:
        print(as_markdown(results, first, commands_of(plan)), end="")
    else:
        _print_table(sweep, plan, results, first, by_run=options.runs)
    return 0


def _print_table(
    sweep: Sweep, plan: SweepPlan, results: list[SettingResult], first: SettingResult | None, *, by_run: bool
) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    waits_for = what_it_waits_for(sweep)
    runs = f"its queue waits for {printable(waits_for)}" if waits_for else "its queue runs"
    queue = runs if sweep.queue_pid() is not None else f"no queue; {how_to_go_on(sweep)}"
    queue = "stopping" if state_of_sweep(sweep, plan, results) is RunStatus.STOPPING else queue
    left = "" if is_done(plan, results) else f"; {queue}"
    line = f"{sweep.name}: {counted(len(plan.members), 'run')}, {states_text(results)}{left}"
    console.print(line, markup=False, soft_wrap=True)  # a command in it can be copied
    members = [member for result in results for member in result.members]
    gives_way: list[tuple[str, list[str] | None]]
    if by_run:
        records = [member.record for member in members]
        columns = {
            "run": [member.run.name for member in members],
            "setting": [shown_setting(member.settings) for member in members],
            "seed": [str(member.seed) for member in members],
            "state": [member.state for member in members],
            "env steps": [f"{0 if record is None else record.env_steps:,}" for record in records],
            "result": [within(member.final, "{:.4g}".format) for member in members],
            "best": [_number(member.best) for member in members],
            "last": [_number(member.last) for member in members],
        }
        gives_way = [("env steps", None), ("last", None), ("seed", None), ("best", None)]
        if any(reasons := [member.reason for member in members]):
            long, short = ([_cut(reason, cells) for reason in reasons] for cells in _REASON)
            columns["reason"] = long
            gives_way = [("reason", short), *gives_way, ("reason", None)]
    else:
        most = most_steps(results)
        marks = [SHORTER * (result.trained_steps < most) for result in results]
        columns = {
            "setting": [shown_setting(result.settings) for result in results],
            "done": [f"{result.done}/{len(result.members)}{' pruned' * result.is_pruned}" for result in results],
            "env steps": [f"{result.env_steps:,}" for result in results],
            "result": [shown(result.final, mark) for result, mark in zip(results, marks, strict=True)],
            "best evaluation": [shown(result.best, mark) for result, mark in zip(results, marks, strict=True)],
            "last episodes": [shown(result.last, mark) for result, mark in zip(results, marks, strict=True)],
            "better": [better_text(result.improves(first)) for result in results],
            "time": [duration(result.wall_s) for result in results],
        }
        best, last, better = (
            [text.partition(" (")[0] for text in columns[name]]
            for name in ("best evaluation", "last episodes", "better")
        )
        gives_way = [
            ("last episodes", last), ("better", better), ("time", None), ("env steps", None), ("last episodes", None),
            *([("best evaluation", best)] if any(result.final for result in results) else []), ("better", None),
        ]  # fmt: skip
    if not any(result.final for result in results):
        del columns["result"]
    console.print(_table(columns, console.width, gives_way))
    if not by_run:
        console.print(explained(results), markup=False)
    for line in failed_lines(sweep, results):
        console.print(line, markup=False, soft_wrap=True)


def _table(columns: dict[str, list[str]], room: int, gives_way: Sequence[tuple[str, list[str] | None]]) -> Table:
    """Columns, by their heads. Without `room` for all, heads have two lines, then cells get shorter or columns (None)
    go, as `gives_way` says, and at last settings wrap."""

    def longest(texts: Iterable[str]) -> int:
        return max(map(cell_len, texts), default=0)

    def is_too_wide(*, two_lines: bool = True) -> bool:
        heads = (longest(name.split()) if two_lines else cell_len(name) for name in columns)
        cells = (min(longest(texts), _NARROW if name == "setting" else room) for name, texts in columns.items())
        return sum(map(max, heads, cells)) + 2 * len(columns) > room

    is_narrow = is_too_wide(two_lines=False)
    for name, shorter in gives_way:
        if not is_too_wide():
            break
        if shorter is None:
            del columns[name]
        else:
            columns[name] = shorter
    table = Table(box=None, header_style="bold")
    for name, texts in columns.items():
        wraps = name == "setting" and (is_too_wide() or longest(texts) > _NARROW)
        table.add_column(name.replace(" ", "\n") if is_narrow else name, no_wrap=not wraps)
    for cells in zip(*columns.values(), strict=True):
        # As they are: rich would take brackets for styles, and pass control characters on.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _list(run_dir: str | None, *, as_json: bool) -> int:
    found = []
    for sweep in list_sweeps(run_dir):
        try:
            found.append((sweep, plan := sweep.plan(), results_of(sweep, plan)))
        except UserError as error:
            print(f"mario-tui: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps([summary(*each) for each in found], indent=2))
        return 0
    if not found:
        print(NO_SWEEPS)
    for sweep, _, results in found:
        waits = f"; waits for {what_it_waits_for(sweep)}" * bool(what_it_waits_for(sweep))
        line, path = printable(f"{sweep.name}  {states_text(results)}{waits}  "), printable(str(sweep.path))
        left = max(_LEAST_PATH, shutil.get_terminal_size().columns - cell_len(line))
        print(line + (shortened(path, left) if sys.stdout.isatty() else path))
    return 0


def summary(sweep: Sweep, plan: SweepPlan, results: list[SettingResult]) -> dict[str, Any]:
    """A sweep as a whole, for JSON."""
    return {
        "name": sweep.name, "path": str(sweep.path), "queue": sweep.queue_pid() is not None,
        "waits_for": what_it_waits_for(sweep),
        "state": state_of_sweep(sweep, plan, results), "states": states_of(results),
        "failed": {
            member.run.name: member.reason for result in results for member in result.members if member.has_failed
        },
    }  # fmt: skip


def _run(sweep: Sweep, member: MemberResult) -> dict[str, Any]:
    earlier = [
        {"state": each.event, "reason": each.reason, "path": str(sweep.path / each.folder)}
        for each in member.history.ended
        if each.folder
    ]
    return {**member_row(member), "tries": member.history.tries, "earlier": earlier}


def _mean(result: SettingResult, metric: Shown) -> float:
    reached = result.reached(metric)
    return statistics.fmean(reached) if reached else float("-inf")


def _cut(text: str, cells: int) -> str:
    """The text, cut at its end if it is too long: it is told whole below the table."""
    return text if len(text) <= cells else f"{text[: cells - 1]}…"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
