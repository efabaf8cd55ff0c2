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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engine.config.reading import what_it_obeys
from engine.errors import UserError
from engine.host.client import HostClient, HostGone, InvalidMessage, attach
from engine.protocol.commands import Checkpoint, Command, Pause, Resume, Stop
from engine.protocol.messages import Hello, Log, Progress, Saved, State
from engine.runs.run import NOT_BEGUN, HeldRun, Run
from engine.runtime.text import printable
from mario_tui.commands.attach import run_of
from mario_tui.commands.options import LONGEST_S, Parser, add_run_dir, existing, within
from mario_tui.data.run_status import RunStatus, failed_line, failure

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
_NOT_IN_TIME = {
    Stop: "has not ended",
    Pause: "was not paused",
    Resume: "did not continue",
    Checkpoint: "wrote no checkpoint",
}
_LOOK_S = 0.2
_MOST_HELD = 256
"""Folders of runs that are kept open, of the files that a process may have open."""
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
    after = "" if name == "wait" else "; if they pass, the status is 124, and what was sent is still obeyed"
    parser.add_argument(
        "--timeout", type=within("--timeout", 0, LONGEST_S), default=math.inf, metavar="S",
        help=f"seconds to wait (default: no limit){after}",
    )  # fmt: skip
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Run the command that the first of `arguments` names."""
    name, *others = arguments
    options = control_parser(name).parse_args(others)
    run_dir = existing(options.run_dir)
    deadline = time.monotonic() + options.timeout
    if name == "wait":
        runs = [run_of(each, run_dir) for each in options.run]  # a wrong name is told now rather than in some hours
        held: list[Run] = [HeldRun(each.path) for each in runs[:_MOST_HELD]]  # they may be renamed meanwhile
        results: Iterable[_Result] = (_waited_for(each, deadline) for each in (*held, *runs[_MOST_HELD:]))
    else:
        results = _carried_out(_COMMANDS[name], options.run, run_dir, deadline)
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


@dataclass(frozen=True)
class _Request:
    """A command to one run: `client` is connected if it was sent; without a `run` it failed, as `result` says."""

    result: _Result
    run: Run | None = None
    client: HostClient | None = None


def _carried_out(command: Command, names: list[str], run_dir: str | None, deadline: float) -> Iterator[_Result]:
    """Send the command to all runs, then yield what became of each."""
    with ThreadPoolExecutor(len(names)) as pool:  # a host that does not answer must not keep others waiting
        requests = list(pool.map(lambda name: _requested(command, name, run_dir, deadline), names))
    for request in requests:
        result, run, client = request.result, request.run, request.client
        if run is None:
            yield result
        elif client is not None:
            yield _effect(command, client, run, result, deadline)
        elif isinstance(command, Stop):
            yield replace(_end(run), status=0)
        else:
            end = _end(run)  # it may have ended since `result`
            yield replace(end, reason=f"{run.name}: is not running (state: {end.state})", status=_REFUSED)


def _requested(command: Command, name: str, run_dir: str | None, deadline: float) -> _Request:
    """Send the command to the run of that name."""
    result = _Result(name)
    try:
        run = run_of(name, run_dir)
        result = _Result(run.name, str(run.path), _state(run))
        return _Request(result, run, _sent(command, run, deadline))
    except UserError as error:
        return _Request(replace(result, reason=str(error), status=_late(deadline) or _REFUSED))


def _sent(command: Command, run: Run, deadline: float) -> HostClient | None:
    """A connection on which the command was sent; None if the run has ended. Raises `UserError`."""
    client = attach(run, _left_s(deadline))
    if client is not None:
        obeys = client.hello.obeys
        if obeys is not None and type(command).__name__ not in obeys:
            client.close()
            raise UserError(f"{run.name}: {what_it_obeys(obeys)}")
        with contextlib.suppress(HostGone):  # reading tells as well
            client.send(command)
    return client


def _effect(command: Command, client: HostClient, run: Run, result: _Result, deadline: float) -> _Result:
    """Wait until the command took effect, and return `result` with what it did. Closes the connection."""
    try:
        if isinstance(command, Pause | Resume):
            return _turned("paused" if isinstance(command, Pause) else "running", client, run, result, deadline)
        with client:
            begun_at = 0  # environment steps of the run when the command was sent, at least
            while True:
                match client.receive(deadline):
                    case Hello():  # training has restarted, say, and may not have read the command
                        client.send(command)
                        begun_at = 0
                    case Progress(env_steps=env_steps):
                        begun_at = begun_at or env_steps
                    case Saved(kind="checkpoint", path=path, env_steps=env_steps) if (
                        isinstance(command, Checkpoint) and env_steps >= begun_at
                    ):
                        return replace(result, checkpoint=path)
                    case Log(level="error", text=text) if isinstance(command, Checkpoint) and "checkpoint" in text:
                        return replace(result, reason=f"{run.name}: {text}", status=_FAILED)
    except TimeoutError:
        reason = f"{run.name}: {_NOT_IN_TIME[type(command)]} in time (state: {_state(run)})"
    except (InvalidMessage, UserError) as error:
        reason = str(error)
    except HostGone:
        if isinstance(command, Stop):
            return _end(run, deadline)
        reason = f"{run.name}: ended before it did what it was told"
    return replace(result, state=_state(run), reason=reason, status=_late(deadline) or _FAILED)


def _turned(wanted: State, client: HostClient, run: Run, result: _Result, deadline: float) -> _Result:
    """Wait until the run is paused, or running again. Another client may want the opposite at the same time: the newest
    command counts, so the host must have read this one before what it says of the run is an answer. Raises
    `TimeoutError` and `HostGone`."""
    with client:
        is_read = True
        with contextlib.suppress(OSError):  # if the connection has failed, the next one tells why
            is_read = client.hand_over(_left_s(deadline))
        if not is_read:
            raise TimeoutError
    follower = attach(run, _left_s(deadline))
    if follower is None:
        raise HostGone
    with follower:
        while True:
            match follower.receive(deadline):
                case Progress(state=state) if state == wanted:
                    return replace(result, state=state)
                case Progress(state="paused" | "running" as state, wants=wants) if wants not in ("", wanted):
                    other = "resumed" if wants == "running" else "paused"
                    reason = f"{run.name}: was {other} by somebody else at the same time"
                    return replace(result, state=state, reason=reason, status=_FAILED)


def _left_s(deadline: float) -> float:
    return max(1e-3, deadline - time.monotonic())


def _late(deadline: float) -> int:
    """The exit status if the deadline has passed; else 0."""
    return _TIMED_OUT if time.monotonic() >= deadline else 0


def _waited_for(run: Run, deadline: float) -> _Result:
    """Return how the run ended; it has failed, like the run itself, if it was stopped before training began."""
    end = _end(run, deadline)
    return replace(end, reason=f"{run.name}: {NOT_BEGUN}", status=_FAILED) if end.reason == NOT_BEGUN else end


def _end(run: Run, deadline: float = math.inf) -> _Result:
    """Wait until the run has no host any more, and return how it ended."""
    while True:
        path = _where(run)
        is_alive = run.is_alive()
        try:
            record = run.record()
        except UserError:
            if _where(run) != path:  # it was renamed meanwhile
                continue
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


def _where(run: Run) -> Path | None:
    """Return where the run's folder is now; None if it is gone."""
    with contextlib.suppress(FileNotFoundError, UserError):
        return run.look()
    return None


def _state(run: Run) -> str | None:
    with contextlib.suppress(UserError):
        return RunStatus.of_record(run.record())
    return None
