"""`mario-tui sweep stop`, `resume`, `add` and `wait`."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import time
from typing import Any

import msgspec

from engine.errors import ScarceError, UserError
from engine.runs.lookup import find_sweep, how_to_name
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.commands.options import LONGEST_S, Parser, add_run_dir, existing, within
from mario_tui.data.format import counted
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.folder import is_stopping
from mario_tui.extras.sweeps.options import (
    RAY,
    add_variations,
    asked_settings,
    check_count,
    check_devices,
    check_runs,
    cluster_of,
)
from mario_tui.extras.sweeps.queue import alive_runs, note_ends, start_queue, stop_runs
from mario_tui.extras.sweeps.results import (
    DELETED,
    PRUNED,
    MemberState,
    failed_lines,
    how_to_go_on,
    is_done,
    member_states,
    results_of,
    states_text,
)
from mario_tui.extras.sweeps.status import summary
from mario_tui.launch import asked_options

_POLL_S = 0.3
_STOP_S = 660.0
"""Seconds that a queue has to stop its runs."""
_FAILED, _TIMED_OUT = 1, 124
"""Exit statuses, as of `mario-tui wait`."""


def stop(arguments: list[str]) -> int:
    parser = _parser("stop", "Stop the runs of a sweep, each with a checkpoint.", timeout_s=_STOP_S)
    options = parser.parse_args(arguments)
    sweep = _sweep_of(options)
    until = time.monotonic() + options.timeout
    with contextlib.suppress(ScarceError):  # it stops on a full disk, too
        sweep.note("stopping")
    while (pid := sweep.queue_pid()) is not None:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    if pid is None:
        with sweep.lock():  # as its queue: so nobody starts anything meanwhile
            left = stop_runs(sweep, until)
    else:
        left = [run.name for run in alive_runs(sweep)]
    plan = sweep.plan()
    if left or pid is not None:
        return _told(options, sweep, f"did not end in time: {', '.join(left) or 'its queue'}", _TIMED_OUT)
    if is_done(plan, results_of(sweep, plan)):
        return _told(options, sweep, "all runs are done")
    return _told(options, sweep, f"{'stopped; ' * sweep.is_own}{how_to_go_on(sweep)}")


def resume(arguments: list[str]) -> int:
    parser = _parser("resume", "Resume a sweep: its waiting, stopped and failed runs.")
    parser.add_argument("--ray", metavar="ADDRESS", help=f"{RAY}; none: on this machine (default: as before)")
    options = parser.parse_args(arguments)
    sweep = _sweep_of(options)
    plan = sweep.own_plan()
    if is_done(plan, results_of(sweep, plan)):
        return _told(options, sweep, "all runs are done")
    _check_not_stopping(sweep, plan)
    if sweep.queue_pid() is None:
        was_on_cluster = plan.ray != "none"
        if options.ray is not None:
            cluster_of(options.ray)
            with sweep.changed_plan() as (plan, write):
                plan = msgspec.structs.replace(plan, ray=options.ray)
                check_devices(plan, plan.settings)
                write(plan)
        note_ends(sweep)
        members = member_states(sweep, plan)
        sweep.note("resumed", *(member.run for member in members if _is_left(member, was_on_cluster)))
    start_queue(sweep)
    return _told(options, sweep, f"resumed; see: mario-tui sweep watch {how_to_name(sweep)}")


def _is_left(member: MemberState, was_on_cluster: bool) -> bool:
    """Return whether a run is to be begun or resumed. What still trains on a cluster stops, because its queue is
    gone."""
    if member.state in (RunStatus.FINISHED, PRUNED, DELETED):
        return False
    return was_on_cluster or not member.is_active


def add(arguments: list[str]) -> int:
    parser = _parser("add", "Add runs to a sweep.")
    add_variations(parser)
    options = parser.parse_args(arguments)
    sweep = _sweep_of(options)
    with sweep.changed_plan() as (plan, write):
        _check_not_stopping(sweep, plan)
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
    for text in warnings:
        print(f"note: {text}", file=sys.stderr)
    told = f"{counted(len(members), 'more run')}, {len(added.members)} in all"
    return _told(options, sweep, told, added=len(members))


def wait(arguments: list[str]) -> int:
    parser = _parser("wait", "Wait until no run of a sweep waits or trains.", timeout_s=math.inf)
    options = parser.parse_args(arguments)
    sweep = _sweep_of(options)
    until = time.monotonic() + options.timeout
    while True:
        waits = sweep.queue_pid() is not None  # looked at first: it starts runs
        plan = sweep.plan()
        results = results_of(sweep, plan)
        waits = waits or any(member.is_active for result in results for member in result.members)
        if not waits or time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    for line in failed_lines(sweep, results):
        print(f"mario-tui: {line}", file=sys.stderr)
    if waits:
        return _told(options, sweep, f"has not ended in time: {states_text(results)}", _TIMED_OUT)
    if is_done(plan, results):
        return _told(options, sweep, states_text(results))
    return _told(options, sweep, f"{states_text(results)}; {how_to_go_on(sweep)}", _FAILED)


def _parser(command: str, about: str, timeout_s: float | None = None) -> Parser:
    """Parser of a command; with `timeout_s`, it waits so long if no other time is given."""
    parser = Parser(prog=f"mario-tui sweep {command}", description=about)
    parser.add_argument("sweep", help="name or folder, or latest")
    if timeout_s is not None:
        default = "no limit" if math.isinf(timeout_s) else f"{timeout_s:.0f}"
        parser.add_argument(
            "--timeout", type=within("--timeout", 0, LONGEST_S), default=timeout_s, metavar="S",
            help=f"seconds to wait; then the exit status is {_TIMED_OUT} (default: {default})",
        )  # fmt: skip
    add_run_dir(parser, "sweeps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _sweep_of(options: argparse.Namespace) -> Sweep:
    return find_sweep(options.sweep, existing(options.run_dir))


def _check_not_stopping(sweep: Sweep, plan: SweepPlan) -> None:
    if is_stopping(sweep, plan):
        raise UserError(f"{sweep.name}: is stopping; once it has stopped, use: mario-tui sweep resume {sweep.name}")


def _told(options: argparse.Namespace, sweep: Sweep, text: str, status: int = 0, **more: Any) -> int:
    """Print what a command has done, and return its exit status."""
    if options.json:
        plan = sweep.plan()
        print(json.dumps({**summary(sweep, plan, results_of(sweep, plan)), **more, "status": status}))
    else:
        print(f"{'mario-tui: ' * (status > 0)}{sweep.name}: {text}", file=sys.stderr if status else sys.stdout)
    return status
