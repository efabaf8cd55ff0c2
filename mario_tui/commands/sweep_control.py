"""`mario-tui sweep stop`, `resume`, `add` and `wait`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import msgspec

from engine.errors import UserError
from engine.runs.lookup import find_sweep, how_to_name
from engine.runs.sweep import Member, Sweep
from mario_tui.commands.options import Parser
from mario_tui.commands.sweep_options import (
    RAY,
    add_variations,
    asked_settings,
    check_count,
    check_devices,
    check_runs,
    cluster_of,
)
from mario_tui.data.format import counted
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_table import failed_lines, how_to_go_on, is_done, results_of, states_text
from mario_tui.launch import asked_options
from mario_tui.sweep_queue import start_queue, status_of, stop_runs

_POLL_S = 0.3
_STOP_S = 660.0
"""Seconds that a queue has to stop its runs."""


def stop(arguments: list[str]) -> int:
    sweep = _sweep_of("stop", "Stop the runs of a sweep, each with a checkpoint.", arguments)
    until = time.monotonic() + _STOP_S
    while (pid := sweep.queue_pid()) is not None:
        if time.monotonic() > until:
            raise UserError(f"{sweep.name}: its queue did not end in {_STOP_S:.0f} s; see {sweep.log_path}")
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(_POLL_S)
    stop_runs(sweep)
    plan = sweep.plan()
    if is_done(plan, results_of(sweep, plan)):
        print(f"{sweep.name}: all runs are done")
    else:
        print(f"{sweep.name}: {'stopped; ' * sweep.is_own}{how_to_go_on(sweep)}")
    return 0


def resume(arguments: list[str]) -> int:
    parser = Parser(
        prog="mario-tui sweep resume",
        description="Resume a sweep: its waiting, stopped and failed runs.",
    )
    parser.add_argument("sweep", help="name or folder, or latest")
    parser.add_argument("--ray", metavar="ADDRESS", help=f"{RAY}; none: on this machine (default: as before)")
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep)
    plan = sweep.own_plan()
    if is_done(plan, results_of(sweep, plan)):
        print(f"{sweep.name}: all runs are done")
        return 0
    if sweep.queue_pid() is None:
        was_on_cluster = plan.ray != "none"
        if options.ray is not None:
            cluster_of(options.ray)
            with sweep.changed_plan() as (plan, write):
                plan = msgspec.structs.replace(plan, ray=options.ray)
                check_devices(plan, plan.settings)
                write(plan)
        runs = [sweep.run(number) for number in range(len(plan.members))]
        left = [run.name for run in runs if run.name not in plan.pruned and _is_left(status_of(run), was_on_cluster)]
        sweep.write_tries(sweep.tries() | dict.fromkeys(left, 0))
    start_queue(sweep)
    print(f"{sweep.name}: resumed; see: mario-tui sweep watch {how_to_name(sweep)}")
    return 0


def _is_left(status: RunStatus | None, was_on_cluster: bool) -> bool:
    """Whether a run is to be begun or resumed. What still trains on a cluster stops, because its queue is gone."""
    return status is None or (status is not RunStatus.FINISHED and (was_on_cluster or not status.is_active))


def add(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep add", description="Add runs to a sweep.")
    parser.add_argument("sweep", help="name or folder, or latest")
    add_variations(parser)
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep)
    with sweep.changed_plan() as (plan, write):
        if plan.search is not None:
            raise UserError("sweep add: a search chooses its settings itself; start another sweep")
        seeds = sorted({member.seed for member in plan.members})
        kept = [result.settings for result in results_of(sweep, plan) if not result.is_pruned]
        asked = [asked_options(each, None, None) for each in asked_settings(options)]
        settings = asked if options.vary else kept
        if options.first_seed is not None and not options.seeds:
            raise UserError("--first-seed needs --seeds N")
        if options.seeds:
            first = options.first_seed if options.first_seed is not None else 0 if options.vary else seeds[-1] + 1
            seeds = list(range(first, first + options.seeds))
        members = [Member(setting, seed) for seed in seeds for setting in settings]
        members = [member for member in members if member not in plan.members]
        if not members:
            raise UserError("sweep add: all these runs exist already; choose other values for --vary or --seeds")
        check_count(len(plan.members) + len(members))
        _, warnings = check_runs(plan, settings, sweep.path.parent)
        added = msgspec.structs.replace(plan, members=(*plan.members, *members))
        write(added)
    if sweep.queue_pid() is None:
        start_queue(sweep)
    print(f"{sweep.name}: {counted(len(members), 'more run')}, {len(added.members)} in all")
    for text in warnings:
        print(f"note: {text}", file=sys.stderr)
    return 0


def wait(arguments: list[str]) -> int:
    sweep = _sweep_of("wait", "Wait until no run of a sweep waits or trains.", arguments)
    while True:
        waits = sweep.queue_pid() is not None  # looked at first: it starts runs
        plan = sweep.plan()
        results = results_of(sweep, plan)
        if not waits and not any(member.is_active for result in results for member in result.members):
            if is_done(plan, results):
                return 0
            print(f"mario-tui: {sweep.name}: {states_text(results)}; {how_to_go_on(sweep)}", file=sys.stderr)
            for line in failed_lines(sweep, results):
                print(f"mario-tui: {line}", file=sys.stderr)
            return 1
        time.sleep(_POLL_S)


def _sweep_of(command: str, about: str, arguments: list[str]) -> Sweep:
    parser = Parser(prog=f"mario-tui sweep {command}", description=about)
    parser.add_argument("sweep", help="name or folder, or latest")
    return find_sweep(parser.parse_args(arguments).sweep)
