"""`mario-tui profile`: runs the engine's profiler in a separate process and prints its report."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.config.command_line import given
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.framing import decode_profile
from engine.protocol.messages import Failed
from engine.protocol.results import Profiled
from engine.runs.run import CONFIG_FILE
from engine.runtime.files import open_output, write_output
from engine.runtime.json_text import json_line
from engine.runtime.signals import exits_on_signals
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.launch import make_plan

_EXIT_TIMEOUT_S = 30.0


@exits_on_signals()
def profile(options: argparse.Namespace) -> int:
    """Profile a run and write the report. Returns the exit status."""
    config = make_plan(given(options), options.config, None, options.preset).config
    trial_s = options.trial_duration or max(6.0, options.duration / 3)
    arguments = [f"--duration={options.duration}", f"--trials={options.trials}", f"--trial-duration={trial_s}"]
    if options.trace is not None:
        arguments.append(f"--trace={options.trace.resolve()}")
    with contextlib.ExitStack() as stack:
        for name in ("report_file", "trace"):
            stack.enter_context(_writable(f"--{name.replace('_', '-')}", getattr(options, name)))
        folder = stack.enter_context(_folder(config))
        (folder / CONFIG_FILE).write_text(config.to_toml(), encoding="utf-8")
        command = EngineCommand("profile", str(folder), *arguments, decode=decode_profile, leave_s=_EXIT_TIMEOUT_S)
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
