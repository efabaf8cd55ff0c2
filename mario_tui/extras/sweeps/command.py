"""`mario-tui sweep`: many runs that differ in options and seeds, a few at a time; and what they have reached."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.config.command_line import add_arguments, given
from engine.config.fields import check, coerce
from engine.config.game import GAMES
from engine.config.run_config import COMMON, RunConfig
from engine.config.runners import RUNNERS
from engine.errors import UserError
from engine.runs.lookup import find_sweep, how_to_name
from engine.runs.registry import LATEST
from engine.runs.run import Annotation
from engine.runs.sweep import Member, Search, SweepPlan
from engine.runtime.files import expanded
from engine.runtime.text import printable
from mario_tui.commands.options import (
    Parser,
    add_annotation,
    add_read_only,
    add_run_dir,
    add_trust,
    chosen,
    existing,
    given_annotation,
    need_terminal,
)
from mario_tui.data.format import counted
from mario_tui.extras.sweeps import control, status
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.extras.sweeps.options import (
    CHOICES,
    PARSERS,
    PLAN_KEYS,
    RAY,
    add_variations,
    asked_settings,
    check_count,
    check_runs,
    cluster_of,
    jobs_of,
    prune_after,
    read_plan,
    shared_cores,
)
from mario_tui.extras.sweeps.queue import start_queue
from mario_tui.extras.sweeps.search import check_optuna
from mario_tui.launch import asked_options

_ABOUT = """\
Train many runs that differ in options and seeds, a few at a time. They are
ordinary runs: attach, pause (the next one takes the place), stop. All other
options are those of every run; see mario-tui --help-all.

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
  sweep resume SWEEP    resume waiting, stopped and failed runs, also after a
                        reboot
  sweep add SWEEP       more: --seeds N further seeds of all settings, or new
                        settings with --vary
  sweep wait SWEEP      until no run waits or trains; exit status 1 unless all
                        are finished, pruned or deleted
all take --run-dir DIR, all but watch --json, stop and wait --timeout S
"""


def sweep_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Parser for starting a sweep."""
    parser = Parser(
        prog="mario-tui sweep", description=_ABOUT, epilog=_MORE, allow_abbrev=False,
        usage="mario-tui sweep [status|watch|stop|resume|add|wait] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter, conflict_handler="resolve",
    )  # fmt: skip
    add_variations(parser)
    parser.add_argument(
        "--jobs", type=jobs_of, metavar="auto|N", help="runs at the same time (default: auto, as many as cores)"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the sweep (default: its game and the time)")
    parser.add_argument(
        "--plan", type=Path, metavar="FILE.toml",
        help=f"read the sweep from a file, with the keys {', '.join(PLAN_KEYS)}; flags override it",
    )  # fmt: skip
    parser.add_argument("--preset", metavar="NAME", help="known setup that all runs start from")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read the options of all runs from a file")
    add_trust(parser, "--plan or --config")
    parser.add_argument(
        "--search", choices=CHOICES["search"],
        help="choose the N settings of --sample sequentially, with Optuna's TPE",
    )  # fmt: skip
    parser.add_argument(
        "--metric", choices=CHOICES["metric"],
        help="metric that --search maximises: mean over seeds of the best evaluation (default) or of the last episodes",
    )  # fmt: skip
    parser.add_argument(
        "--prune", choices=CHOICES["prune"],
        help="stop settings whose evaluations stay below the median of the others, with Optuna's median pruner",
    )  # fmt: skip
    parser.add_argument(
        "--prune-after", type=PARSERS["prune-after"], metavar="STEPS",
        help="env steps before which --prune stops nothing; raise it if some settings learn late (default: a quarter)",
    )  # fmt: skip
    add_annotation(parser, "of all runs, besides the name of the sweep", "about the runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_arguments(parser, game, runner)
    parser.add_argument(
        "--ray", metavar="ADDRESS", default=argparse.SUPPRESS,
        help=f"{RAY} (default: none, on this machine); each gets --threads cores (1) of a node and, where nodes have"
        " GPUs and --device lets it, a GPU",
    )  # fmt: skip
    return parser


def run(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "status": status.run, "watch": _watch, "stop": control.stop,
        "resume": control.resume, "add": control.add, "wait": control.wait,
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
        values = read_plan(options.plan, options, values) | values
    base = asked_options(values, options.config, options.preset, trusted=options.trust)
    ray = cluster_of(str(base.pop("ray", "none")))
    if "seed" in base:
        raise UserError("--seed: a sweep has --seeds N, and --first-seed N")
    run_dir = expanded(str(base.pop("run_dir", RunConfig.run_dir)))
    settings = [asked_options(setting, None, None) for setting in asked_settings(options)]  # with absolute paths
    if not options.vary and not options.seeds:
        raise UserError("a sweep needs --vary OPTION=VALUE,VALUE or --seeds N")
    first = options.first_seed or 0
    seeds = range(first, first + (options.seeds or 1))
    members = tuple(Member(setting, seed) for seed in seeds for setting in settings)
    check_count(len(members))
    threads = coerce(COMMON["threads"], base.pop("threads", None))
    check(COMMON["threads"], threads)
    jobs, threads = shared_cores(ray, len(members), options.jobs or None, threads)
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
        options=base, jobs=jobs, threads=threads,
        members=() if search else members, search=search, ray=ray,
        annotation=given_annotation(options) or Annotation(),
    )  # fmt: skip
    configs, warnings = check_runs(plan, settings, run_dir)
    plan = msgspec.structs.replace(plan, prune_after=prune_after(options, configs))
    name = options.name or f"sweep-{base.get('game', game)}-{time.strftime('%Y%m%d-%H%M%S')}"
    sweep = create_sweep(run_dir, name, plan, numbered=options.name is None)
    start_queue(sweep)
    if never := [config for config in configs if not 0 < config.eval_every <= config.steps]:
        count = counted(len(never), "setting")
        warnings.insert(0, f"without evaluations: {count}; --eval-every is {never[0].eval_every:,}")
    for text in warnings:
        print(f"note: {text}", file=sys.stderr)
    if options.json:
        print(json.dumps({"name": sweep.name, "path": str(sweep.path), "runs": len(members), "jobs": jobs}))
        return 0
    cores = "" if threads is None else f", {counted(threads, 'core')} each"
    each = [config.steps for config in configs]
    at_once = f"{jobs} at a time" if jobs else "as many at a time as fit on the cluster"
    steps = " to ".join(f"{count:,}" for count in sorted({min(each), max(each)}))
    runs = f"{counted(len(settings), 'setting')}, {counted(len(members), 'run')} of {steps} steps"
    print(f"sweep {sweep.name}: {runs}, {at_once}{cores}")
    print(printable(f"folder {sweep.path}"))
    print(f"see: mario-tui sweep watch {how_to_name(sweep)}, or sweep status")
    return 0


def _watch(arguments: list[str]) -> int:
    parser = Parser(prog="mario-tui sweep watch", description="A sweep, live: its settings, their curves, its options.")
    parser.add_argument("sweep", nargs="?", default=LATEST, help="name or folder (default: latest)")
    add_read_only(parser)
    add_run_dir(parser, "sweeps")
    options = parser.parse_args(arguments)
    sweep = find_sweep(options.sweep, existing(options.run_dir))
    sweep.plan()
    need_terminal(f"mario-tui sweep status {how_to_name(sweep)}")
    from mario_tui.app import MarioApp
    from mario_tui.extras.sweeps.screen import SweepScreen

    return MarioApp(read_only=options.read_only, open_screen=lambda: SweepScreen(sweep)).run_in_terminal()
