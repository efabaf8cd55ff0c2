"""The process behind `mario-tui profile`: measures a configuration, finds what limits it, and tries faster ones.

`python -m engine.extras.profiling.profile ORDER` reads the options from FOLDER/config.toml. It writes packed
messages to its standard output: `Log` lines as it works, then `Profiled` or `Failed`. When its standard input closes,
it stops cleanly. All runs that it starts are in FOLDER, without evaluations and checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from engine.commands.answers import order_of, take_stdout
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.extras.profiling.report import (
    WORTH,
    Confirmed,
    Idea,
    Measurement,
    Trial,
    figures,
    gain,
    ideas,
    markdown,
    mean_split,
)
from engine.host.client import HostGone, HostProcess
from engine.protocol.commands import Stop, Trace
from engine.protocol.framing import failure_of
from engine.protocol.messages import Failed, Finished, Log, Progress, Ready, Split, TimeSplits
from engine.protocol.messages import System as SystemEvent
from engine.protocol.results import Profiled, ProfileOrder
from engine.runs.registry import create_run
from engine.runs.run import CONFIG_FILE, read_config
from engine.runtime.files import write_output
from engine.runtime.processes import continued_with_parent, end_with_stdin
from engine.runtime.stopwatch import TRACE_PARTS
from engine.runtime.threads import cpu_seconds, machine_cpu_seconds

_BURNIN = 1000
_BEGIN_S = 180.0
"""Time within which a run must begin to learn."""
_TRACE_S = 2.0
_LEAVE_S = 3.0
_NEVER = 10**15


@dataclass(frozen=True)
class Plan:
    """Durations in seconds, maximum number of trials, and the file for a trace, if one is wanted."""

    duration_s: float
    trial_s: float
    trials: int
    trace: Path | None


class RunFailedError(Exception):
    """A run that was being measured failed or ended."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def measure(config: RunConfig, folder: Path, seconds: float, trace_file: Path | None = None) -> Measurement:
    """Start a run, wait until it learns, run it for another `seconds`, and measure the second half of those.

    With `trace_file`, also record a trace. Raises `UserError` if the options can't be run, `RunFailedError` if the run
    fails.
    """
    quiet = dataclasses.replace(
        config, run_dir=str(folder), burnin=min(config.burnin, _BURNIN), steps=_NEVER, episodes=None, eval_every=0,
        save_every=_NEVER, restarts=0, render=False, checkpoint_replay=False,
    )  # fmt: skip
    host = HostProcess(create_run(quiet), foreground=True)
    try:
        with host.connect() as client:
            ready: Ready | None = None
            began_at, traced_at = None, None
            complete = False  # whether every process has reported how it spends its time
            progress: list[Progress] = []
            meter = _Meter(host.process.pid)
            splits: dict[str, list[Split]] = {}
            systems: list[tuple[float, SystemEvent]] = []
            deadline = time.monotonic() + _BEGIN_S
            while True:
                event = client.receive()
                now = time.monotonic()
                since = 0.0 if began_at is None else now - began_at
                steady = since >= seconds / 2
                match event:
                    case Ready():
                        ready = event
                    case Progress() if steady:
                        progress.append(event)
                        meter.look()
                        if since >= seconds and len(progress) > 1:
                            break
                    case Progress() if began_at is None and complete and event.updates > 0:
                        began_at = now
                    case TimeSplits() if not steady:
                        complete = all(split.seconds > 0 for split in event.processes)
                    case TimeSplits():
                        for split in event.processes:
                            splits.setdefault(split.process, []).append(split)
                    case SystemEvent() if began_at is not None:
                        systems.append((since, event))
                    case Failed():
                        raise RunFailedError(event)
                    case Finished():
                        raise RunFailedError(_failed("the run ended before it was measured"))
                    case _:
                        pass
                if began_at is None and now > deadline:
                    raise RunFailedError(_failed(f"learning did not begin within {_BEGIN_S:.0f} s"))
                if trace_file is not None and steady and traced_at is None:
                    traced_at = now
                    client.send(Trace(seconds=min(_TRACE_S, seconds / 2)))
            if trace_file is not None:
                _collect(host.run.path, len(splits), trace_file)
            client.send(Stop(reason="measured"))
    except HostGone:
        raise RunFailedError(_failed(f"its host died; log: {host.run.log_path}")) from None
    finally:
        _stop_host(host)
    first, last = progress[0], progress[-1]
    span = max(last.at - first.at, 1e-9)
    return Measurement(
        config=config,
        ready=ready,
        seconds=span,
        env_steps_per_s=(last.env_steps - first.env_steps) / span,
        updates_per_s=(last.updates - first.updates) / span,
        processes=[mean_split(each) for each in splits.values()],
        cores=meter.cores,
        cores_used=meter.run / span,
        others=max(0.0, (meter.machine - meter.run) / (span * meter.cores)),
        systems=systems,
        replay_size=last.replay_size,
    )


def search(
    base: Measurement, trials: int, again: Callable[[RunConfig], Measurement], log: Callable[[str], None]
) -> list[Trial]:
    """Try ideas, the most promising first, at most `trials` of them. Adopt those that are faster by `WORTH`."""
    best, done, tried = base, list[Trial](), {_key(base.config)}
    while len(done) < trials:
        new = [(idea, config) for idea, config in ideas(best) if _key(config) not in tried]
        if not new:
            break
        idea, config = new[0]
        tried.add(_key(config))
        try:
            found = again(config)
        except (RunFailedError, UserError) as error:
            done.append(Trial(idea, config, best, None, False, str(error)))
            log(f"{_changes(idea)}: {error}")
            continue
        trial = Trial(idea, config, best, found, gain([best], [found]).ratio >= WORTH)
        done.append(trial)
        log(f"{_changes(idea)}: {found.speed:,.0f} environment steps/s, {'faster' if trial.adopted else 'not faster'}")
        adopted = trial.adopted
        best = found if adopted else best
    return done


def profile(config: RunConfig, folder: Path, plan: Plan, log: Callable[[str], None]) -> Profiled:
    """Measure a run, search for a faster one, and then measure both once more, in alternation."""
    log(f"running for {plan.duration_s:.0f} s")
    base = measure(config, folder, plan.duration_s, plan.trace)
    log(f"{base.speed:,.0f} environment steps/s")

    def again(other: RunConfig) -> Measurement:
        return measure(other, folder, plan.trial_s)

    trials = search(base, plan.trials, again, log)
    adopted = [trial for trial in trials if trial.adopted]
    confirmed = None
    if adopted:
        best = adopted[-1].found
        assert best is not None
        log("measuring the original and the faster configuration once more")
        before = (base, again(base.config))
        confirmed = Confirmed(before, (best, again(best.config)))
        log(f"{confirmed.gain.ratio:.2f} times as fast")
    name = f"{config.game}-{config.task_label}-{time.strftime('%Y%m%d-%H%M%S')}"
    return Profiled(
        run=name, report=markdown(name, base, trials, confirmed), figures=figures(name, base, trials, confirmed)
    )


class _Meter:
    """CPU seconds of a run (its host and all descendants) and of the machine, between the first and last `look`."""

    def __init__(self, host: int) -> None:
        self._host = psutil.Process(host)
        self.cores = psutil.cpu_count() or 1
        self._first: tuple[float, float] | None = None
        self.run = self.machine = 0.0

    def look(self) -> None:
        now = cpu_seconds(self._host), machine_cpu_seconds()
        self._first = self._first or now
        self.run, self.machine = (late - early for early, late in zip(self._first, now, strict=True))


def _stop_host(host: HostProcess) -> None:
    """Stop a run's host, by force if it takes longer; nothing of the run is needed any more."""
    if host.process.stdin is not None:
        host.process.stdin.close()
    for then in (host.process.terminate, host.process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.process.wait(_LEAVE_S)
            return
        then()
    host.process.wait()


def _collect(run: Path, processes: int, into: Path) -> None:
    """Wait for the traces of all processes, at most 10 s, and merge them into one file."""
    deadline = time.monotonic() + 10
    while len(found := sorted(run.glob(TRACE_PARTS))) < processes and time.monotonic() < deadline:
        time.sleep(0.05)
    write_output(into, json.dumps(merged_trace(found)))


def merged_trace(parts: Iterable[Path]) -> dict[str, Any]:
    """Combine parts into one trace, in the object form of the format."""
    events = [event for part in parts for event in json.loads(part.read_text("utf-8"))]
    return {"traceEvents": sorted(events, key=lambda event: event.get("ts", 0.0)), "displayTimeUnit": "ms"}


def _changes(idea: Idea) -> str:
    return ", ".join(f"{name} {value}" for name, value in idea.changes.items())


def _key(config: RunConfig) -> bytes:
    return msgspec.json.encode(config.options(), order="sorted")


def _failed(reason: str) -> Failed:
    return Failed(reason=reason)


def main() -> int:
    """See the module's docstring."""
    order = order_of(ProfileOrder)
    folder, trace = Path(order.folder), None if order.trace is None else Path(order.trace)
    os.environ["XDG_STATE_HOME"] = order.folder  # keeps these runs out of the user's list of runs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell inherit SIG_IGN
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the front end starts its processes with it blocked
    continued_with_parent()
    end_with_stdin(on_close=lambda: os.kill(os.getpid(), signal.SIGINT), timeout_s=20 * _LEAVE_S)
    send = take_stdout()
    runs = folder / "runs"
    try:
        config = read_config(folder / CONFIG_FILE)
        plan = Plan(order.duration, order.trial_duration, order.trials, trace)
        send(profile(config, runs, plan, lambda text: send(Log(at=time.time(), level="info", text=text))))
    except KeyboardInterrupt:
        return 130
    except RunFailedError as error:
        send(error.failure)
        return 1
    except Exception as error:
        send(failure_of(error))
        return 1
    finally:
        shutil.rmtree(runs, ignore_errors=True)  # the parent, which would remove them, may have been killed
    return 0


if __name__ == "__main__":
    sys.exit(main())
