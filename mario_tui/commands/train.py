"""`mario-tui --game ...`: starts or resumes a run, with its dashboard or headless."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from engine import __version__
from engine.config.command_line import add_arguments, given, presets
from engine.config.fields import flag
from engine.config.game import GAMES, game_of
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS, torchrun_rank
from engine.errors import UserError
from engine.protocol.json_lines import EVENT_NAMES
from engine.runtime.files import expanded
from engine.runtime.processes import killed_with_parent
from mario_tui.commands import evaluate
from mario_tui.commands.options import (
    Parser,
    add_annotation,
    add_log_format,
    add_read_only,
    add_trust,
    chosen,
    given_annotation,
    need_terminal,
)
from mario_tui.features import commands, package_commands
from mario_tui.launch import Plan, make_plan

_ABOUT = """\
Train DQN agents (Double, dueling, n-step, prioritized) from a terminal and watch them learn.

every day:
  mario-tui                       home: your runs, new run, resume, attach
  mario-tui --game mario [...]    start a run and open its dashboard
  mario-tui --no-ui [...]         the same without the dashboard
  mario-tui --detach [...]        start a run and leave it alone
{daily}

other commands:
{others}

{what} below, with the defaults of {game} with the {runner} runner; for others:
mario-tui --game snake --runner apex {flag}
"""
_MORE = """\
mario-tui --help-all           all options of a run
mario-tui COMMAND --help       what a command does, and its options
"""
_REST = """\
--read-only works with attach, with serve, or alone (home)

exit status: 0 finished or stopped, 1 the run failed, 2 wrong usage or configuration
"""
_DAILY = (
    "help", "help_all", "no_ui", "detach", "resume", "name", "preset", "config", "trust", "game", "env", "runner",
    "num_processes", "num_actors", "steps", "seed", "device", "run_dir",
)  # fmt: skip
"""Options that `--help` shows, besides the one that the game's tasks are chosen by."""
_EARLIER = """\
options of earlier scripts that belong to a runner or a command here (docs/coming-from-earlier-scripts.md):
  --num-processes N               with --runner parallel or ddp
  --num-actors N                  with --runner apex
  --duration S, --report-file F   mario-tui profile
"""
_OF_COMMANDS = {
    **dict.fromkeys(("--duration", "--report-file", "--trace", "--trials"), "profile"),
    **dict.fromkeys(("--human", "--record", "--hold"), "play"),
}
"""Options that only a command has."""


class _DailyHelp(argparse.Action):
    """Shows the options that most people need; `const`: what to say of them, and their names."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        parser.description, daily = self.const
        parser.epilog = _MORE
        for action in parser._actions:
            if action.dest not in daily:
                action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()


class _Parser(Parser):
    def meant(self, unknown: str) -> str:
        command = _OF_COMMANDS.get(unknown)
        return f"; did you mean mario-tui {command} {unknown}?" if command else super().meant(unknown)


def training_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Parser for starting a run; its help covers `game` and `runner`."""
    parser = _Parser(
        prog="mario-tui",
        usage="mario-tui [COMMAND] [options]",
        description=_about("All options are", game, runner, "--help-all"),
        epilog=f"{_EARLIER}\n{_REST}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    daily = _about("Daily options are", game, runner, "--help")
    parser.add_argument(
        "-h", "--help", action=_DailyHelp, nargs=0, const=(daily, {*_DAILY, game_of(game).tasks}),
        help="show commands and daily options, and exit",
    )  # fmt: skip
    parser.add_argument("--help-all", action="help", help="show commands and all options, and exit")
    parser.add_argument("--version", action="version", version=f"mario-tui {__version__}")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--no-ui", action="store_true", help="train without the dashboard")
    forms.add_argument(
        "--detach",
        action="store_true",
        help="start the run, print its name once training has begun, and leave it alone",
    )
    add_log_format(parser, "with --no-ui ")
    parser.add_argument("--json", action="store_true", help="with --detach: print one JSON object")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from a file; flags override it")
    add_trust(parser, "--config")
    parser.add_argument("--resume", metavar="RUN|PATH|latest", help="resume from a run's newest or a given checkpoint")
    parser.add_argument(
        "--eval-only",
        action="store_true",
        help="do not train: play --eval-episodes games with the best policy of the newest run of the game in "
        "--run-dir, or of the run that --resume names",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the new run (default: its game and the time)")
    add_annotation(parser, "of the run", "about the run")
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a known setup; file and flags override it: "
        + "; ".join(f"{name} ({preset.help})" for name, preset in presets().items()),
    )
    add_read_only(parser)
    add_arguments(parser, game, runner)
    return parser


def _about(what: str, game: str, runner: str, flag: str) -> str:
    """The description, with a line for each command that is there."""
    known = commands()
    daily, others = (
        [
            f"  mario-tui {f'{name} {each.usage}':<21} {each.about}"
            for name, each in known.items()
            if each.is_daily is daily
        ]
        for daily in (True, False)
    )
    others += [f"  mario-tui {name:<21} of package {each.package}" for name, each in package_commands().items()]
    lines = {"daily": "\n".join(daily), "others": "\n".join(others)}
    return _ABOUT.format(**lines, what=what, game=game, runner=runner, flag=flag)


def run(arguments: list[str]) -> int:
    game, runner = chosen(arguments, "--game", GAMES), chosen(arguments, "--runner", RUNNERS)
    options = training_parser(game, runner).parse_args(arguments)
    if options.json and not options.detach:
        raise UserError("--json needs --detach")
    if options.log_events and (options.log_format != "json" or options.eval_only):
        raise UserError("--log-events needs --no-ui --log-format json")
    if options.eval_only:
        if options.detach:
            raise UserError("--detach can't be combined with --eval-only, which starts no run")
        return evaluate.run_eval_only(options)
    values = given(options)
    if options.read_only:
        starting = (
            "no_ui", "detach", "config", "trust", "resume", "name", "tag", "note", "preset", "log_format", "log_events",
        )  # fmt: skip
        others = [name for name in starting if getattr(options, name)]
        asked = next(name for name in (*others, *values) if name != "run_dir")
        raise UserError(
            f"--read-only can't be combined with {flag(asked)}, which starts a run; use it alone, with attach or with "
            "serve"
        )
    if (rank := torchrun_rank()) is not None:
        if not options.no_ui:
            raise UserError(f"torchrun needs --no-ui; for the dashboard: mario-tui attach {rank.name}")
        killed_with_parent()
    plan = _plan(values, options)
    if plan.is_done:
        assert plan.run is not None
        print(f"{plan.run.name}: all environment steps are done")
        return 0
    if rank is not None and rank.index:
        folder = str(Path(plan.config.run_dir).resolve() / rank.name)
        os.execv(sys.executable, [sys.executable, "-P", "-m", "engine.extras.torchrun.rank", folder])
    plan = replace(plan, annotation=given_annotation(options, plan.run))
    if options.log_format and not options.no_ui:
        raise UserError("--log-format needs --no-ui")
    if options.no_ui:
        from mario_tui.headless import train_headless

        return train_headless(plan, options.log_format, options.log_events or EVENT_NAMES)
    if options.detach:
        from mario_tui.detached import train_detached

        return train_detached(plan, options.json)
    need_terminal("mario-tui --no-ui")
    from mario_tui.app import MarioApp

    run_dir = str(expanded(values["run_dir"])) if "run_dir" in values else None
    host = plan.start()
    return MarioApp(open_run=host.run, host=host, run_dir=run_dir).run_in_terminal()


def _plan(values: dict[str, Any], options: argparse.Namespace) -> Plan:
    """The run to start. To verify the checkpoint that is resumed reads all of it."""
    sources = options.config, options.resume, options.preset, options.name
    make = functools.partial(make_plan, values, *sources, trusted=options.trust)
    if options.resume is None:
        return make()
    from mario_tui.terminal.console import progress_bar

    with progress_bar("verifying the checkpoint", total=1) as move:
        return make(progress=move)
