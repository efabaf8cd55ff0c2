"""`mario-tui sweep`: many runs that differ in options and seeds, a few at a time; and what they have reached."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from engine.config.command_line import add_arguments, given
from engine.config.constraints import check_ray
from engine.config.fields import must_be_one_of
from engine.config.games import GAMES
from engine.config.ray_cluster import check_cluster
from engine.config.run_config import RunConfig, stored_options
from engine.config.runners import RUNNERS
from engine.errors import UserError
from engine.runs.registry import LATEST
from engine.runs.sweep import (
    MOST_RUNS,
    Member,
    Search,
    Sweep,
    SweepPlan,
    create_sweep,
    find_sweep,
)
from engine.runtime.text import printable
from engine.runtime.threads import available_cores
from engine.runtime.toml_file import read_toml
from mario_tui.commands import sweep_status
from mario_tui.commands.options import Parser, add_read_only, chosen, need_terminal, whole
from mario_tui.commands.sweep_status import searches
from mario_tui.data.run_status import RunStatus
from mario_tui.data.sweep_table import listed, results_of, setting_text
from mario_tui.data.variations import grid, sample
from mario_tui.launch import asked_options, expanded, make_plan
from mario_tui.sweep_pruning import STARTUP_SETTINGS
from mario_tui.sweep_queue import start_queue, status_of, stop_runs
from mario_tui.sweep_search import check_optuna

_ABOUT = """\
Train many runs that differ in options and seeds, a few at a time. They are
ordinary runs: attach, pause (the next one takes the place), stop. All other
options are those of every run; see mario-tui --help.

  mario-tui sweep --game snake:5x5 --vary learning-rate=3e-4,1e-3 \\
      --vary n-step=1,3 --seeds 5
  mario-tui sweep --game snake:5x5 --vary learning-rate=log:1e-4..1e-2 \\
      --sample 10 --search tpe --seeds 3
"""
_MORE = """\
then:
  sweep status [SWEEP]  settings, mean over seeds with 95 % interval; --runs,
                        --csv, --markdown, --json
  sweep watch [SWEEP]   the same live, with curves, and results by option
  sweep stop SWEEP      stop its runs, each with a checkpoint, and start no more
  sweep resume SWEEP    go on, also after a reboot: with what waits, was stopped
                        or has failed
  sweep add SWEEP       more: --seeds N further seeds of all settings, or new
                        settings with --vary
  sweep wait SWEEP      until no run waits or trains; exit status 1 unless all
                        are finished
"""
_PLAN_KEYS = (
    "vary", "seeds", "first-seed", "sample", "sample-seed", "search", "metric", "prune", "prune-after", "jobs", "name",
    "options",
)  # fmt: skip
_RAY = "Ray cluster whose nodes the runs are placed on: auto (the one of this machine, or $RAY_ADDRESS) or HOST:PORT"
_NO_PRUNING = "--prune can't be combined with --ray"
_POLL_S = 0.3
_STOP_S = 660.0
"""Seconds that a queue has to stop its runs."""
_CHOICES = {"search": ("tpe",), "metric": ("best", "last"), "prune": ("median",)}


def _one_of(name: str, text: str) -> str:
    if text not in _CHOICES[name]:
        raise UserError(f"--{name} {must_be_one_of(_CHOICES[name], text)}")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "seeds": whole("--seeds", 1, MOST_RUNS),
    "first-seed": whole("--first-seed", 0, 2**32 - MOST_RUNS),
    "sample": whole("--sample", 1, MOST_RUNS),
    "sample-seed": whole("--sample-seed", 0, 2**31),
    **{name: partial(_one_of, name) for name in _CHOICES},
    "prune-after": whole("--prune-after", 0, 2**32),
    "jobs": lambda text: _jobs(text),
    "name": str,
}


def sweep_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Parser for starting a sweep."""
    parser = Parser(
        prog="mario-tui sweep", description=_ABOUT, epilog=_MORE, allow_abbrev=False,
        usage="mario-tui sweep [status|watch|stop|resume|add|wait] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter, conflict_handler="resolve",
    )  # fmt: skip
    _add_variations(parser)
    parser.add_argument(
        "--jobs", type=_jobs, metavar="auto|N", help="runs at the same time (default: auto, as many as cores)"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the sweep (default: its game and the time)")
    parser.add_argument(
        "--plan", type=Path, metavar="FILE.toml",
        help=f"read the sweep from a file, with the keys {', '.join(_PLAN_KEYS)}; flags override it",
    )  # fmt: skip
    parser.add_argument("--preset", metavar="NAME", help="known setup that all runs start from")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read the options of all runs from a file")
    parser.add_argument(
        "--search", choices=_CHOICES["search"],
        help="choose the N settings of --sample one after the other, with Optuna's TPE",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=_CHOICES["metric"],
        help="what --search makes large: mean over seeds of the best evaluation (default), or of the last episodes",
    )  # fmt: skip
    parser.add_argument(
        "--prune", choices=_CHOICES["prune"],
        help="stop settings whose evaluations stay below the median of the others, with Optuna's median pruner",
    )  # fmt: skip
    parser.add_argument(
        "--prune-after", type=_PARSERS["prune-after"], metavar="STEPS",
        help="env steps before which --prune stops nothing; raise it if some settings learn late (default: a quarter)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_arguments(parser, game, runner)
    parser.add_argument(
        "--ray", metavar="ADDRESS", default=argparse.SUPPRESS,
        help=f"{_RAY} (default: none, on this machine); each gets --threads cores (1) of a node and, where nodes have"
        " GPUs and --device lets it, a GPU",
    )  # fmt: skip
    return parser


def run(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "status": sweep_status.run, "watch": _watch, "stop": _stop, "resume": _resume, "add": _add, "wait": _wait,
    }  # fmt: skip
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    if arguments and not arguments[0].startswith("-"):
        raise UserError(f"sweep: unknown command {arguments[0]!r}; must be one of {', '.join(commands)}")
    return _start(arguments)


def _start(arguments: list[str]) -> int:
    game, runner = chosen(arguments, "--game", GAMES), chosen(arguments, "--runner", RUNNERS)
    options = sweep_parser(game, runner).parse_args(arguments)
    values = given(options)
    if options.plan is not None:
        values = _read_plan(options.plan, options) | values
    base = asked_options(values, options.config, options.preset)
    ray = _cluster_of(str(base.pop("ray", "none")))
    if "seed" in base:
        raise UserError("--seed: a sweep has --seeds N, and --first-seed N")
    run_dir = expanded(str(base.pop("run_dir", RunConfig.run_dir)))
    settings = [asked_options(setting, None, None) for setting in _settings(options)]  # with absolute paths
    if not options.vary and not options.seeds:
        raise UserError("a sweep needs --vary OPTION=VALUE,VALUE or --seeds N")
    first = options.first_seed or 0
    seeds = range(first, first + (options.seeds or 1))
    members = tuple(Member(setting, seed) for seed in seeds for setting in settings)
    _check_count(len(members))
    jobs, threads = _shared_cores(ray, len(members), options.jobs or None, base.pop("threads", None))
    if options.metric and not options.search:
        raise UserError("--metric needs --search")
    search = None
    if options.search is not None:
        if options.sample is None:
            raise UserError("--search needs --sample N, the number of settings to try")
        check_optuna("--search")
        search = Search(
            vary=tuple(options.vary), count=options.sample, seeds=tuple(seeds), seed=options.sample_seed or 0,
            metric=options.metric or "best",
        )  # fmt: skip
    plan = SweepPlan(
        options=base, varied=tuple(settings[0]), jobs=jobs, threads=threads,
        members=() if search else members, search=search, ray=ray,
    )  # fmt: skip
    configs = _check_runs(plan, settings, run_dir)
    plan = msgspec.structs.replace(plan, prune_after=_prune_after(options, configs, ray))
    name = options.name or f"sweep-{base.get('game', game)}-{time.strftime('%Y%m%d-%H%M%S')}"
    sweep = create_sweep(run_dir, name, plan)
    start_queue(sweep)
    if options.json:
        print(json.dumps({"name": sweep.name, "path": str(sweep.path), "runs": len(members), "jobs": jobs}))
        return 0
    each = "" if threads is None else f", {threads} core{'s' * (threads > 1)} each"
    at_once = f"{jobs} at a time" if jobs else "as many at a time as the cluster carries"
    print(f"sweep {sweep.name}: {len(settings)} settings, {len(members)} runs, {at_once}{each}")
    print(printable(f"folder {sweep.path}"))
    print(f"see: mario-tui sweep status {sweep.name}")
    return 0


def _watch(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep watch", description="A sweep, live: its settings, their curves, its options.")
    parser.add_argument("sweep", nargs="?", default=LATEST, help="name or folder (default: latest)")
    add_read_only(parser)
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep)
    sweep.plan()
    need_terminal(f"mario-tui sweep status {sweep.name}")
    from mario_tui.app import MarioApp

    return MarioApp(run_dir=str(sweep.path), read_only=options.read_only, sweep=sweep).run_in_terminal()


def _stop(arguments: list[str]) -> int:
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
    print(f"{sweep.name}: stopped; to go on: mario-tui sweep resume {sweep.name}")
    return 0


def _resume(arguments: list[str]) -> int:
    parser = Parser(
        prog="mario-tui sweep resume",
        description="Go on with a sweep: with runs that wait, were stopped or have failed.",
    )
    parser.add_argument("sweep", help="name or folder, or latest")
    parser.add_argument("--ray", metavar="ADDRESS", help=f"{_RAY}; none: on this machine (default: as before)")
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep)
    plan = sweep.own_plan()
    if sweep.queue_pid() is None:
        was_on_cluster = plan.ray != "none"
        if options.ray is not None:
            if _cluster_of(options.ray) != "none" and plan.prune_after is not None:
                raise UserError(_NO_PRUNING)
            with sweep.changed_plan() as (plan, write):
                plan = msgspec.structs.replace(plan, ray=options.ray)
                write(plan)
        again = [RunStatus.STOPPED, RunStatus.FAILED, RunStatus.LOST, RunStatus.DAMAGED, None]
        if was_on_cluster:  # what still trains there stops, because its queue is gone
            again += [status for status in RunStatus if status.is_active]
        runs = [sweep.run(number) for number in range(len(plan.members))]
        left = [run.name for run in runs if run.name not in plan.pruned and status_of(run) in again]
        sweep.write_tries(sweep.tries() | dict.fromkeys(left, 0))
    start_queue(sweep)
    print(f"{sweep.name}: goes on; see: mario-tui sweep status {sweep.name}")
    return 0


def _add(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep add", description="Add runs to a sweep.")
    parser.add_argument("sweep", help="name or folder, or latest")
    _add_variations(parser)
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep)
    with sweep.changed_plan() as (plan, write):
        if plan.search is not None:
            raise UserError("sweep add: a search chooses its settings itself; start another sweep")
        seeds = sorted({member.seed for member in plan.members})
        kept = [result.settings for result in results_of(sweep, plan) if not result.is_pruned]
        settings = [asked_options(each, None, None) for each in _settings(options)] if options.vary else kept
        if options.seeds:
            first = options.first_seed if options.first_seed is not None else 0 if options.vary else seeds[-1] + 1
            seeds = list(range(first, first + options.seeds))
        members = [Member(setting, seed) for seed in seeds for setting in settings]
        members = [member for member in members if member not in plan.members]
        if not members:
            raise UserError("sweep add: all these runs are there already; give other --vary or --seeds")
        _check_count(len(plan.members) + len(members))
        _check_runs(plan, settings, sweep.path.parent)
        varied = tuple(dict.fromkeys((*plan.varied, *settings[0])))
        added = msgspec.structs.replace(plan, varied=varied, members=(*plan.members, *members))
        write(added)
    if sweep.queue_pid() is None:
        start_queue(sweep)
    print(f"{sweep.name}: {len(members)} more runs, {len(added.members)} in all")
    return 0


def _wait(arguments: list[str]) -> int:
    sweep = _sweep_of("wait", "Wait until no run of a sweep waits or trains.", arguments)
    while True:
        waits = sweep.queue_pid() is not None  # looked at first: it starts runs
        plan = sweep.plan()
        results = results_of(sweep, plan)
        if not waits and not any(member.is_active for result in results for member in result.members):
            is_done = all(result.is_done for result in results)
            return 0 if is_done and not searches(plan, results) else 1
        time.sleep(_POLL_S)


def _sweep_of(command: str, about: str, arguments: list[str]) -> Sweep:
    parser = Parser(prog=f"mario-tui sweep {command}", description=about)
    parser.add_argument("sweep", help="name or folder, or latest")
    return find_sweep(parser.parse_args(arguments).sweep)


def _add_variations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vary", action="append", metavar="OPTION=VALUES",
        help="values of an option, separated by commas; with --sample also a range LOW..HIGH or log:LOW..HIGH",
    )  # fmt: skip
    parser.add_argument("--sample", type=_PARSERS["sample"], metavar="N", help="N random settings")
    parser.add_argument("--sample-seed", type=_PARSERS["sample-seed"], metavar="N", help="seed of them (default: 0)")
    parser.add_argument("--seeds", type=_PARSERS["seeds"], metavar="N", help="seeds of each setting")
    parser.add_argument("--first-seed", type=_PARSERS["first-seed"], metavar="N", help="the first (default: 0)")


def _settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.sample is not None and not options.vary:
        raise UserError("--sample needs --vary OPTION=LOW..HIGH")
    if options.sample is not None:
        return sample(options.vary, options.sample, options.sample_seed or 0)
    return grid(options.vary or [])


def _read_plan(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The run options of a file; what else it has, and flags have not, goes to `options`. Raises `UserError`."""
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--plan: {path}: can't be read ({error})") from None
    for key, value in values.items():
        if key not in _PLAN_KEYS:
            raise UserError(f"--plan: {path}: unknown key {key!r}; must be one of {', '.join(_PLAN_KEYS)}")
        name = key.replace("-", "_")
        if key in ("vary", "options"):
            if not isinstance(value, dict):
                raise UserError(f"--plan: {path}: {key} must be a table, got {value!r}")
        elif getattr(options, name) is None:
            setattr(options, name, _PARSERS[key](str(value)))
    if options.vary is None:
        options.vary = [f"{name}={listed(each)}" for name, each in values.get("vary", {}).items()] or None
    found = {name.replace("-", "_"): value for name, value in values.get("options", {}).items()}
    for name in found:
        if name not in stored_options():
            raise UserError(f"--plan: {path}: unknown option {name!r}")
    return found


def _check_count(count: int) -> None:
    if count > MOST_RUNS:
        raise UserError(f"a sweep must have at most {MOST_RUNS:,} runs, got {count:,}")


def _check_runs(plan: SweepPlan, settings: list[dict[str, Any]], run_dir: Path) -> list[RunConfig]:
    """Options of a run of each setting. Raises `UserError` naming the setting if those of one don't fit together."""
    configs = []
    for setting in settings:
        try:
            configs.append(make_plan({**plan.values(Member(setting, 0)), "run_dir": str(run_dir)}).config)
        except UserError as error:
            raise UserError(f"{error} (with {setting_text(setting)})" if setting else str(error)) from None
    return configs


def _prune_after(options: argparse.Namespace, configs: list[RunConfig], ray: str) -> int | None:
    """Steps before which no setting is pruned; None if none ever is. Raises `UserError` if none could be."""
    if options.prune is None:
        if options.prune_after is not None:
            raise UserError("--prune-after needs --prune")
        return None
    if ray != "none":
        raise UserError(_NO_PRUNING)
    if len(configs) <= STARTUP_SETTINGS:
        raise UserError(f"--prune needs at least {STARTUP_SETTINGS + 1} settings, to compare them, got {len(configs)}")
    if any(config.eval_every == 0 for config in configs):
        raise UserError("--prune compares evaluations: --eval-every must be above 0")
    check_optuna("--prune")
    return min(config.steps for config in configs) // 4 if options.prune_after is None else int(options.prune_after)


def _cluster_of(asked: str) -> str:
    """What `--ray` names, once a cluster answers there. Raises `UserError`."""
    check_ray(asked, ("none", "auto"))  # a sweep on one machine needs no cluster
    if asked != "none":
        check_cluster(asked)
    return asked


def _shared_cores(ray: str, runs: int, jobs: int | None, threads: int | None) -> tuple[int | None, int | None]:
    """How many runs train at once, None for as many as a cluster carries, and the cores of each; None where processes
    can't be bound to cores."""
    if ray != "none":
        return jobs, threads or (1 if hasattr(os, "sched_setaffinity") else None)
    cores = available_cores()
    jobs = min(runs, jobs or max(1, cores // (threads or 1)))
    if threads is None and hasattr(os, "sched_setaffinity"):
        threads = max(1, cores // jobs)
    return jobs, threads


def _jobs(text: str) -> int:
    """0 for `auto`."""
    return 0 if text == "auto" else whole("--jobs", 1, 1000)(text)
