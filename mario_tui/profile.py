"""`mario-tui profile`: runs the engine's profiler in a process of its own and shows what it finds."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from engine.config.command_line import given
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.framing import HEADER_BYTES, body_length, decode_profile
from engine.protocol.messages import Failed, Log, Profiled, ProfileReport
from engine.runs.run import CONFIG_FILE
from engine.runtime.text import json_line
from mario_tui.launch import make_plan

_LEAVE_S = 30.0
_SHORTEST_S, _LONGEST_S = 2.0, 3600.0


def add_profile_arguments(parser: argparse.ArgumentParser, whole: Callable[..., Callable[[str], int]]) -> None:
    """The options of the command itself; those of the run come beside them. `whole` makes parsers of numbers."""
    group = parser.add_argument_group("profile")
    group.add_argument(
        "--duration", type=_seconds("--duration"), default=30.0, metavar="S",
        help="seconds of learning to look at; the second half is measured (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--trials", type=whole("--trials", 0, 100), default=6, metavar="N",
        help="other options that are tried along what limits the run, 0 for none (default: 6)",
    )  # fmt: skip
    group.add_argument(
        "--trial-duration", type=_seconds("--trial-duration"), metavar="S",
        help="seconds of learning in each (default: a third of --duration, at least 6)",
    )  # fmt: skip
    group.add_argument(
        "--report-file",
        type=Path,
        metavar="FILE",
        help="the report, in Markdown (default: profile-RUN.md, and printed)",
    )
    group.add_argument(
        "--trace", type=Path, metavar="FILE.json", help="two seconds of every stage, for https://ui.perfetto.dev"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object instead of the report")
    group.add_argument("--config", type=Path, metavar="FILE.toml", help="options from a file; given flags beat it")
    group.add_argument("--preset", metavar="NAME", help="options of a known setup, beneath file and flags")


def profile(options: argparse.Namespace) -> int:
    """Profile and write the report; the exit status."""
    for wanted in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(wanted, _leave)  # as Ctrl-C does: with everything tidied up
    config = make_plan(given(options), options.config, None, options.preset).config
    for name in ("report_file", "trace"):
        _check_writable(f"--{name.replace('_', '-')}", getattr(options, name))
    trial_s = options.trial_duration or max(6.0, options.duration / 3)
    arguments = [f"--duration={options.duration}", f"--trials={options.trials}", f"--trial-duration={trial_s}"]
    if options.trace is not None:
        arguments.append(f"--trace={options.trace.resolve()}")
    with _folder(config) as folder:
        (folder / CONFIG_FILE).write_text(config.to_toml(), encoding="utf-8")
        with _profiler(folder, *arguments) as process:
            for report in _reports(process):
                match report:
                    case Log():
                        print(report.text, file=sys.stderr, flush=True)
                    case Failed(usage=True):
                        raise UserError(report.reason)
                    case Failed():
                        print(f"mario-tui: the run failed: {report.reason}\n{report.traceback}", file=sys.stderr)
                        return 1
                    case Profiled():
                        return _show(report, options)
    print("mario-tui: the profile's process died", file=sys.stderr)
    return 1


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def _show(found: Profiled, options: argparse.Namespace) -> int:
    path: Path = options.report_file or Path(f"profile-{found.run}.md")
    if options.json:
        print(json_line(found.figures))
    elif options.report_file is None:
        print(found.report)
    try:
        path.write_text(found.report, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--report-file: {path}: can't be written ({error.strerror or error})") from None
    for written in (path, options.trace):
        if written is not None:
            print(f"written: {written}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _folder(config: RunConfig) -> Iterator[Path]:
    """Where the runs are that are measured; a replay in a file stays on the disk that it is meant for."""
    parent = None
    if config.use_mmap_buffer:
        parent = Path(config.run_dir)
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mario-tui-profile-", dir=parent) as folder:
        yield Path(folder).resolve()


@contextlib.contextmanager
def _profiler(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The engine's profiler; told to end when the block is left, and waited for."""
    command = [sys.executable, "-P", "-m", "engine.commands.profile", str(folder), *arguments]
    with (folder / "profiler.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reports(process: subprocess.Popen[bytes]) -> Iterator[ProfileReport]:
    assert process.stdout is not None
    while len(header := process.stdout.read(HEADER_BYTES)) == HEADER_BYTES:
        yield decode_profile(process.stdout.read(body_length(header)))


def _check_writable(name: str, path: Path | None) -> None:
    """Before minutes are spent on what can't be written."""
    if path is None:
        return
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise UserError(f"{name}: {path}: can't be written ({error.strerror or error})") from None


def _seconds(name: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not _SHORTEST_S <= value <= _LONGEST_S:
            accepted = f"{_SHORTEST_S:g} to {_LONGEST_S:g} seconds"
            raise UserError(f"{name}: {text!r} is not accepted; accepted: {accepted}")
        return value

    return parse
