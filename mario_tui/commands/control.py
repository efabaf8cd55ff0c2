"""`mario-tui stop`, `pause`, `resume-training`, `checkpoint` and `wait`: for scripts that drive runs.

A command goes to all runs before the first answer is awaited, and what one run can't do keeps no other from it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from engine.config.reported_loop import what_it_obeys
from engine.errors import UserError
from engine.host.client import HostClient, HostGone, InvalidMessage, attach
from engine.protocol.commands import Checkpoint, Command, Pause, Resume, Stop
from engine.protocol.messages import Hello, Log, Progress, Saved
from engine.runs.run import NOT_BEGUN, Run
from engine.runtime.text import printable
from mario_tui.commands.attach import run_of
from mario_tui.commands.options import Parser, add_run_dir, existing, within
from mario_tui.data.exit_status import failed_line, failure
from mario_tui.data.run_status import RunStatus

ABOUT = {
    "stop": "Write a checkpoint and end runs. Returns when they have ended; one that had ended before is no error.",
    "pause": "Pause training. Returns when the runs are paused.",
    "resume-training": "Continue training after a pause. Returns when the runs train again. To resume a run that has "
    "ended: mario-tui --resume RUN",
    "checkpoint": "Write a checkpoint. Returns when it is complete.",
    "wait": "Wait until runs have ended. The exit status is the highest of theirs: 0 finished or saved, 1 failed "
    "or not begun, 124 not ended within --timeout.",
}
"""The commands, and what their help says."""
_COMMANDS: dict[str, Command] = {
    "stop": Stop(),
    "pause": Pause(),
    "resume-training": Resume(),
    "checkpoint": Checkpoint(),
}
_LOOK_S = 0.2
_LONGEST_S = 1e9
_FAILED, _REFUSED, _TIMED_OUT = 1, 2, 124
"""Exit statuses; the last as of the command `timeout`."""


@dataclass(frozen=True)
class _Result:
    """What became of one run, as `--json` prints it."""

    name: str
    path: str | None = None
    state: str | None = None
    """As in `mario-tui runs`."""
    reason: str | None = None
    """Why the run has ended, or what went wrong."""
    checkpoint: str | None = None
    """The one that was asked for; of a run that has ended, its newest."""
    status: int = 0


def control_parser(name: str) -> argparse.ArgumentParser:
    """Parser of the command `name`."""
    parser = Parser(prog=f"mario-tui {name}", description=ABOUT[name])
    parser.add_argument("run", nargs="+", metavar="RUN", help="a run's name or path, or latest")
    parser.add_argument("--json", action="store_true", help="print one JSON array, with an object for each run")
    if name == "wait":
        parser.add_argument(
            "--timeout", type=within("--timeout", 0, _LONGEST_S), default=math.inf, metavar="S",
            help="seconds to wait (default: no limit)",
        )  # fmt: skip
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Run the command that the first of `arguments` names."""
    name, *others = arguments
    options = control_parser(name).parse_args(others)
    run_dir = existing(options.run_dir)
    if name == "wait":
        runs = [run_of(each, run_dir) for each in options.run]  # a wrong name is told now rather than in some hours
        deadline = time.monotonic() + options.timeout
        results: Iterable[_Result] = (_waited_for(each, deadline) for each in runs)
    else:
        results = _carried_out(_COMMANDS[name], options.run, run_dir)
    done = []
    for result in results:
        done.append(result)
        if result.status:
            error = "error: " * (result.status == _REFUSED)
            print(printable(f"mario-tui: {error}{result.reason}"), file=sys.stderr, flush=True)
        elif not options.json:
            print(_line(result), flush=True)
    if options.json:
        print(json.dumps([asdict(result) for result in done], indent=2))
    return max(result.status for result in done)


def _line(result: _Result) -> str:
    reason = f" ({result.reason})" if result.reason else ""
    checkpoint = f"; checkpoint {result.checkpoint}" if result.checkpoint else ""
    return printable(f"{result.name}: {result.state}{reason}{checkpoint}")


def _carried_out(command: Command, names: list[str], run_dir: str | None) -> Iterator[_Result]:
    """Send the command to all runs, then yield what became of each."""
    requests: list[tuple[_Result, Run | None, HostClient | None]] = []
    for name in names:
        result, run, client = _Result(name), None, None
        try:
            run = run_of(name, run_dir)
            result = _Result(run.name, str(run.path), _state(run))
            client = _sent(command, run)
        except UserError as error:
            result, run = replace(result, reason=str(error), status=_REFUSED), None
        requests.append((result, run, client))
    for result, run, client in requests:
        if run is None:
            yield result
        elif client is not None:
            yield _effect(command, client, run, result)
        elif isinstance(command, Stop):
            yield replace(_end(run), status=0)
        else:
            yield replace(_end(run), reason=f"{run.name}: is not running (state: {result.state})", status=_REFUSED)


def _sent(command: Command, run: Run) -> HostClient | None:
    """A connection on which the command was sent; None if the run has ended. Raises `UserError`."""
    client = attach(run)
    if client is not None:
        obeys = client.hello.obeys
        if obeys is not None and type(command).__name__ not in obeys:
            client.close()
            raise UserError(f"{run.name}: {what_it_obeys(obeys)}")
        with contextlib.suppress(HostGone):  # reading tells as well
            client.send(command)
    return client


def _effect(command: Command, client: HostClient, run: Run, result: _Result) -> _Result:
    """Wait until the command took effect, and return `result` with what it did. Closes the connection."""
    wanted = {Pause: "paused", Resume: "running"}.get(type(command))
    reason = f"{run.name}: ended before it did what it was told"
    try:
        with client:
            while True:
                match client.receive():
                    case Hello():  # training has restarted, say, and may not have read the command
                        client.send(command)
                    case Progress(state=state) if state == wanted:
                        return replace(result, state=state)
                    case Saved(kind="checkpoint", path=path) if isinstance(command, Checkpoint):
                        return replace(result, checkpoint=path)
                    case Log(level="error", text=text) if isinstance(command, Checkpoint) and "checkpoint" in text:
                        return replace(result, reason=f"{run.name}: {text}", status=_FAILED)
    except InvalidMessage as error:
        reason = str(error)
    except HostGone:
        if isinstance(command, Stop):
            return _end(run)
    return replace(result, state=_state(run), reason=reason, status=_FAILED)


def _waited_for(run: Run, deadline: float) -> _Result:
    """How the run ended; it has failed, like the run itself, if it was stopped before training began."""
    end = _end(run, deadline)
    return replace(end, reason=f"{run.name}: {NOT_BEGUN}", status=_FAILED) if end.reason == NOT_BEGUN else end


def _end(run: Run, deadline: float = math.inf) -> _Result:
    """Wait until the run has no host any more, and return how it ended."""
    while True:
        is_alive = run.is_alive()
        try:
            record = run.record()
        except UserError:
            return _Result(run.name, str(run.path), reason=f"{run.name}: its folder is gone", status=_REFUSED)
        result = _Result(run.name, str(run.path), RunStatus.of_record(record), record.reason or None, record.checkpoint)
        if not is_alive:
            reason = failure(record)
            return replace(result, reason=failed_line(run, reason), status=_FAILED) if reason else result
        if record.elsewhere:
            reason = f"{run.name}: is running on {record.elsewhere}; wait for it there"
            return replace(result, reason=reason, status=_REFUSED)
        if time.monotonic() >= deadline:
            reason = f"{run.name}: has not ended in time (state: {result.state})"
            return replace(result, reason=reason, status=_TIMED_OUT)
        time.sleep(_LOOK_S)


def _state(run: Run) -> str | None:
    with contextlib.suppress(UserError):
        return RunStatus.of_record(run.record())
    return None
