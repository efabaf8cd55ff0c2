"""`mario-tui --game ...`: starts or resumes a run, with its dashboard or headless."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import __version__
from engine.config.command_line import add_arguments, given
from engine.config.fields import flag
from engine.config.games import GAMES
from engine.config.presets import presets
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS
from engine.config.torchrun import torchrun_rank
from engine.errors import UserError
from engine.runtime.parent import killed_with_parent
from mario_tui.commands import eval_only
from mario_tui.commands.options import Parser, add_annotation, add_read_only, chosen, given_annotation, need_terminal
from mario_tui.launch import Plan, expanded, make_plan

_COMMANDS = """\
commands:
  mario-tui                       home: your runs, new run, resume, attach
  mario-tui --game mario [...]    start a run and open its dashboard
  mario-tui --no-ui [...]         the same without the dashboard
  mario-tui --detach [...]        start a run and leave it alone
  mario-tui attach [RUN|PATH]     dashboard of a running or finished run; charts of event files
  mario-tui runs [--json]         list runs
  mario-tui stop RUN...           write a checkpoint and end the run
  mario-tui pause RUN...          pause training
  mario-tui resume-training RUN   continue training after a pause
  mario-tui checkpoint RUN...     write a checkpoint
  mario-tui wait RUN...           wait until runs have ended; exit with their status
  mario-tui sweep [...]           many runs: options that vary, seeds, a table with intervals
  mario-tui eval CHECKPOINT       clear rate and return over many episodes
  mario-tui distill POLICY ...    teach one network what several policies play
  mario-tui play [CHECKPOINT]     watch a policy; --human: play yourself; --record FILE
  mario-tui profile [...]         time per section, bottlenecks, and faster options
  mario-tui export [RUN|PATH]     scalars of a run or of event files: CSV, JSON lines or Parquet
  mario-tui serve                 the terminal UI in a browser; --host ADDRESS, --port N
  mario-tui completion SHELL      script for the completion of bash, zsh or fish

--read-only works with attach, with serve, or alone (home)

exit status: 0 finished or stopped, 1 the run failed, 2 wrong usage or configuration
"""


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


class _Parser(Parser):
    def meant(self, unknown: str) -> str:
        command = _OF_COMMANDS.get(unknown)
        return f"; did you mean mario-tui {command} {unknown}?" if command else super().meant(unknown)


def training_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Parser for starting a run; its help covers `game` and `runner`."""
    parser = _Parser(
        prog="mario-tui",
        usage="mario-tui [COMMAND] [options]",
        description="Train DQN agents (Double, dueling, n-step, prioritized) from a terminal and watch them learn.\n"
        f"The options and defaults below are those of {game} with the {runner} runner; for others:\n"
        "mario-tui --game snake --runner apex --help",
        epilog=f"{_EARLIER}\n{_COMMANDS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mario-tui {__version__}")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--no-ui", action="store_true", help="train without the dashboard")
    forms.add_argument(
        "--detach",
        action="store_true",
        help="start the run, print its name once training has begun, and leave it alone",
    )
    parser.add_argument(
        "--log-format", choices=("rich", "plain", "json"), help="with --no-ui (default: rich on a terminal, else plain)"
    )
    parser.add_argument("--json", action="store_true", help="with --detach: print one JSON object")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from a file; flags override it")
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


def run(arguments: list[str]) -> int:
    game, runner = chosen(arguments, "--game", GAMES), chosen(arguments, "--runner", RUNNERS)
    options = training_parser(game, runner).parse_args(arguments)
    if options.json and not options.detach:
        raise UserError("--json needs --detach")
    if options.eval_only:
        if options.detach:
            raise UserError("--detach can't be combined with --eval-only, which starts no run")
        return eval_only.run(options)
    values = given(options)
    if options.read_only:
        starting = ("no_ui", "detach", "config", "resume", "name", "tag", "note", "preset", "log_format")
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
        os.execv(sys.executable, [sys.executable, "-P", "-m", "engine.commands.rank", folder])
    plan = replace(plan, annotation=given_annotation(options, plan.run))
    if options.log_format and not options.no_ui:
        raise UserError("--log-format needs --no-ui")
    if options.no_ui:
        from mario_tui.headless import train_headless

        return train_headless(plan, options.log_format or ("rich" if sys.stdout.isatty() else "plain"))
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
    make = functools.partial(make_plan, values, options.config, options.resume, options.preset, options.name)
    if options.resume is None:
        return make()
    from mario_tui.terminal.progress_bar import progress_bar

    with progress_bar("verifying the checkpoint", total=1) as move:
        return make(progress=move)
