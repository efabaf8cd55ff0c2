"""`mario-tui profile`: runs the engine's profiler in a separate process and prints where a run spends its time."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.config.command_line import add_arguments, given
from engine.config.features import place_of_feature
from engine.config.game import GAMES
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS
from engine.errors import UserError
from engine.protocol.messages import Failed
from engine.protocol.results import Profiled, ProfileOrder
from engine.runs.run import CONFIG_FILE
from engine.runtime.files import open_output, write_output
from engine.runtime.formats import json_line
from engine.runtime.processes import exits_on_signals
from mario_tui.commands.options import Parser, add_trust, chosen, whole, within
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.launch import make_plan

_DURATION_S = (2, 3600)


def profile_parser(game: str = RunConfig.game, runner: str = RunConfig.runner) -> argparse.ArgumentParser:
    """Options of the command itself and those of a run; the help covers `game` and `runner`."""
    parser = Parser(
        prog="mario-tui profile",
        usage="mario-tui profile [options of a run] [--duration S] [--report-file FILE] [--trace FILE.json] [--json]",
        description="Measure where a run spends its time, what limits it, and which options make it faster.",
        allow_abbrev=False,
    )
    group = parser.add_argument_group("profile")
    group.add_argument(
        "--duration", type=within("--duration", *_DURATION_S), default=30.0, metavar="S",
        help="seconds of learning; the second half is measured (default: 30; with its trials, three minutes in all)",
    )  # fmt: skip
    group.add_argument(
        "--trials", type=whole("--trials", 0, 100), default=6, metavar="N",
        help="alternative options to try against the bottleneck, each in a run of its own; 0: none (default: 6)",
    )  # fmt: skip
    group.add_argument(
        "--trial-duration", type=within("--trial-duration", *_DURATION_S), metavar="S",
        help="seconds of learning per trial (default: a third of --duration, at least 6)",
    )  # fmt: skip
    group.add_argument(
        "--report-file", type=Path, metavar="FILE",
        help="where to write the report, in Markdown (default: print it, and write profile-RUN.md)",
    )  # fmt: skip
    group.add_argument(
        "--trace", type=Path, metavar="FILE.json", help="write a two-second trace for https://ui.perfetto.dev"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object instead of the report")
    group.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from a file; flags override it")
    add_trust(group, "--config")
    group.add_argument("--preset", metavar="NAME", help="start from a known setup; file and flags override it")
    add_arguments(parser, game, runner)
    return parser


def run(arguments: list[str]) -> int:
    game, runner = chosen(arguments, "--game", GAMES), chosen(arguments, "--runner", RUNNERS)
    options = profile_parser(game, runner).parse_args(arguments)
    return profile(options)


_EXIT_TIMEOUT_S = 30.0


@exits_on_signals()
def profile(options: argparse.Namespace) -> int:
    """Profile a run and write the report. Returns the exit status."""
    config = make_plan(given(options), options.config, None, options.preset, trusted=options.trust).config
    trial_s = options.trial_duration or max(6.0, options.duration / 3)
    trace = None if options.trace is None else str(options.trace.resolve())
    with contextlib.ExitStack() as stack:
        for name in ("report_file", "trace"):
            stack.enter_context(_writable(f"--{name.replace('_', '-')}", getattr(options, name)))
        folder = stack.enter_context(_folder(config))
        (folder / CONFIG_FILE).write_text(config.to_toml(), encoding="utf-8")
        order = ProfileOrder(
            folder=str(folder), duration=options.duration, trials=options.trials, trial_duration=trial_s, trace=trace
        )
        command = EngineCommand(place_of_feature("profiles", "this"), order.argument(), leave_s=_EXIT_TIMEOUT_S)
        with command:
            result = command.result(Profiled, lambda log: print(log.text, file=sys.stderr, flush=True))
        return failed("the run", result) if isinstance(result, Failed) else _show(result, options)


def _show(found: Profiled, options: argparse.Namespace) -> int:
    path: Path = options.report_file or Path(f"profile-{found.run}.md")
    if options.json:
        print(json_line(found.figures))
    elif options.report_file is None:
        print(found.report)
    try:
        write_output(path, found.report)
    except OSError as error:
        raise UserError(f"--report-file: {path}: can't be written ({error.strerror or error})") from None
    for written in (path, options.trace):
        if written is not None:
            print(f"wrote {written}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _folder(config: RunConfig) -> Iterator[Path]:
    """A temporary folder for the measured runs; in the run folder if the replay is in a file, to use the same disk."""
    parent = None
    if config.replay_in_files:
        parent = Path(config.run_dir)
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mario-tui-profile-", dir=parent) as folder:
        yield Path(folder).resolve()


def _writable(name: str, path: Path | None) -> contextlib.AbstractContextManager[object]:
    """The open file, to which others write by its name: a pipe's reader would leave if it were closed.

    Raises `UserError` if it can't be written, before minutes are spent on measuring.
    """
    try:
        return contextlib.nullcontext() if path is None else open_output(path)
    except OSError as error:
        raise UserError(f"{name}: {path}: can't be written ({error.strerror or error})") from None
