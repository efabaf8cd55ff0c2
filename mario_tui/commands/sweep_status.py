"""`mario-tui sweep status`: what the runs of a sweep have reached, as a table, CSV, Markdown or JSON."""

from __future__ import annotations

import json
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
from engine.runs.sweep import Metric, Sweep, SweepPlan, list_sweeps
from engine.runtime.text import printable
from mario_tui.commands.options import Parser
from mario_tui.data.format import counted, duration
from mario_tui.data.sweep_table import (
    EXPLAINED,
    SettingResult,
    as_csv,
    as_markdown,
    commands_of,
    failed_lines,
    how_to_go_on,
    is_done,
    member_row,
    results_of,
    row,
    share,
    shown,
    shown_setting,
    states_of,
    states_text,
)

_NARROW = 40
"""Characters of a setting that stay on one line."""


def run(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep status", description="What the runs of sweeps have reached.")
    parser.add_argument("sweep", nargs="?", help="name or folder, or latest (default: all sweeps)")
    parser.add_argument("--sort", choices=("given", "best", "last"), default="given", help="order (default: as given)")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--runs", action="store_true", help="a line for each run")
    forms.add_argument("--csv", action="store_true", help="the runs as CSV")
    forms.add_argument("--markdown", action="store_true", help="a table for a paper or a pull request")
    forms.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.sweep is None:
        if options.runs or options.csv or options.markdown or options.sort != "given":
            raise UserError("--runs, --csv, --markdown and --sort need a sweep: its name or folder, or latest")
        return _list(as_json=options.json)
    sweep = find_sweep(options.sweep)
    plan = sweep.plan()
    results = results_of(sweep, plan)
    first = results[0] if results else None
    if options.sort != "given":
        results.sort(key=lambda each: _mean(each, options.sort), reverse=True)
    members = [member for result in results for member in result.members]
    if options.json:
        print(json.dumps({**_summary(sweep, results), "settings": [row(each, first) for each in results],
                          "runs": [member_row(each) for each in members]}, indent=2))  # fmt: skip
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
    queue = "its queue runs" if sweep.queue_pid() is not None else f"no queue; {how_to_go_on(sweep)}"
    left = "" if is_done(plan, results) else f"; {queue}"
    console.print(f"{sweep.name}: {counted(len(plan.members), 'run')}, {states_text(results)}{left}", markup=False)
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
            "best": [_number(member.best) for member in members],
            "last": [_number(member.last) for member in members],
        }
        gives_way = [("env steps", None), ("last", None), ("seed", None)]
    else:
        columns = {
            "setting": [shown_setting(result.settings) for result in results],
            "done": [f"{result.done}/{len(result.members)}{' pruned' * result.is_pruned}" for result in results],
            "env steps": [f"{result.env_steps:,}" for result in results],
            "best evaluation": [shown(result.best) for result in results],
            "last episodes": [shown(result.last) for result in results],
            "better": [share(result.improves(first)) for result in results],
            "time": [duration(result.wall_s) for result in results],
        }
        means = [text.partition(" (")[0] for text in columns["last episodes"]]
        gives_way = [
            ("last episodes", means), ("time", None), ("env steps", None), ("last episodes", None), ("better", None)
        ]  # fmt: skip
    console.print(_table(columns, console.width, gives_way))
    if not by_run:
        console.print(EXPLAINED, markup=False)
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


def _list(*, as_json: bool) -> int:
    found = []
    for sweep in list_sweeps():
        try:
            found.append((sweep, results_of(sweep, sweep.plan())))
        except UserError as error:
            print(f"mario-tui: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps([_summary(sweep, results) for sweep, results in found], indent=2))
        return 0
    if not found:
        print(NO_SWEEPS)
    for sweep, results in found:
        print(printable(f"{sweep.name}  {states_text(results)}  {sweep.path}"))
    return 0


def _summary(sweep: Sweep, results: list[SettingResult]) -> dict[str, Any]:
    queue = sweep.queue_pid() is not None
    return {"name": sweep.name, "path": str(sweep.path), "queue": queue, "states": states_of(results)}


def _mean(result: SettingResult, metric: Metric) -> float:
    reached = result.reached(metric)
    return statistics.fmean(reached) if reached else float("-inf")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
