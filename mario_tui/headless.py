"""A run without the dashboard: one more client of its host, with a progress display, plain lines or JSON lines.

stdout carries the program's output, stderr what went wrong. Ctrl-C or SIGTERM: checkpoint, summary, exit 0; a second
one: out at once, whatever the host does. SIGHUP is ignored.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol, TextIO

import msgspec
from rich.progress import (
    BarColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bars,
)
from rich.text import Text

from engine.errors import UserError
from engine.host.client import HostClient, HostGone, HostProcess
from engine.protocol.messages import (
    Episode,
    Evaluation,
    Event,
    Failed,
    Finished,
    Log,
    Phase,
    Progress,
    Ready,
    Saved,
    Stop,
    Summary,
)
from engine.runs.run import Run
from engine.runtime.text import json_line, printable
from mario_tui.data.format import duration, judged, number, reached
from mario_tui.launch import Plan
from mario_tui.terminal.safe_console import SafeConsole

_PLAIN_EVERY_S = 10.0
_JSON_EVERY_S = 1.0
_LEAVE_S = 10.0
"""Within this a host that was told to end at once, or never answered, has to end by itself."""


class Display(Protocol):
    def show(self, event: Event) -> None:
        """Show one event."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def train_headless(plan: Plan, log_format: str) -> int:
    """Start the run and follow it to its end in format "rich", "plain" or "json"; the exit status."""
    stopper = _Stopper()
    host = plan.start(foreground=True)
    stopper.guard(host)
    displays: dict[str, Callable[[Run], Display]] = {"rich": _Rich, "plain": _Plain, "json": _JSONLines}
    display = displays[log_format](host.run)
    end: Finished | Failed | None = None
    try:
        with host.connect() as client:
            stopper.aim(client)
            display.show(client.hello)
            while end is None:
                event = client.receive()
                end = event if isinstance(event, Finished | Failed) else None
                try:
                    display.show(event)
                except BrokenPipeError:  # the reader of our output left, as `| head` does, or `| tee` on Ctrl-C
                    _say_no_more(sys.stdout)
                    stopper.stop("nobody reads its output any more")
                except OSError:  # the terminal was closed: the run is not
                    _say_no_more(sys.stdout, sys.stderr)
    except HostGone:
        pass
    except UserError as error:  # the host did not come up
        print(f"mario-tui: {error}", file=sys.stderr)
        stopper.end_at_once()
        return 1
    finally:
        with contextlib.suppress(OSError):
            display.close()
        host.process.stdin and host.process.stdin.close()
        host.process.wait()
    return exit_status(host.run, end)


def _say_no_more(*streams: TextIO) -> None:
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exit_status(run: Run, end: Finished | Failed | None) -> int:
    """0 after an orderly end; otherwise the reason goes to stderr and 1 comes back, 2 for what could never work."""
    if isinstance(end, Finished):
        return 0
    if end is None and run.record().state == "finished":
        return 0  # it was read too slowly to hear of it
    if isinstance(end, Failed) and end.usage:
        raise UserError(end.reason)
    reason = end.reason if end is not None else "its host crashed"
    print(printable(f"mario-tui: {run.name} failed: {reason}; log: {run.log_path}"), file=sys.stderr)
    return 1


class _Stopper:
    """Turns signals into Stop commands; one that comes before there is a connection waits for it. To the second one the
    host has to answer in time, suspended or not; the third one kills it.
    """

    def __init__(self) -> None:
        self._host: HostProcess | None = None
        self._client: HostClient | None = None
        self._pending: list[str] = []
        self._asked = 0
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, self._received)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def guard(self, host: HostProcess) -> None:
        self._host = host
        if self._asked > 1:
            self.end_at_once()

    def end_at_once(self) -> None:
        """Kill the host, and with it all that it has started, if it is still there in a few seconds."""
        if self._host is not None:
            timer = threading.Timer(_LEAVE_S, self._host.process.kill)
            timer.daemon = True
            timer.start()

    def aim(self, client: HostClient) -> None:
        self._client = client
        self._send()

    def stop(self, reason: str) -> None:
        """Stop in order, unless that was asked for already."""
        if not self._asked:
            self._ask(reason)

    def _received(self, signum: int, frame: FrameType | None) -> None:
        self._ask(f"received {signal.Signals(signum).name}")

    def _ask(self, reason: str) -> None:
        self._asked += 1
        self._pending.append(reason)
        self._send()
        if self._asked == 2:
            self.end_at_once()
        elif self._asked > 2 and self._host is not None:
            self._host.process.kill()

    def _send(self) -> None:
        while self._client is not None and self._pending:
            try:
                self._client.send(Stop(reason=self._pending.pop(0)))
            except HostGone:
                return  # the main loop notices, too


class _JSONLines:
    """One JSON object a line; the last is the summary."""

    def __init__(self, run: Run) -> None:
        self._next = 0.0

    def show(self, event: Event) -> None:
        match event:
            case Progress() if time.monotonic() >= self._next:
                self._next = time.monotonic() + _JSON_EVERY_S
                self._print("progress", event)
            case Episode():
                self._print("episode", event)
            case Evaluation():
                self._print("evaluation", event)
            case Phase():
                self._print("phase", event)
            case Saved():
                self._print("checkpoint", event)
            case Log(level="warning" | "error"):
                self._print("warning", event)
            case Finished():
                self._print("summary", event.summary)
            case Log():
                print(printable(event.text), file=sys.stderr)
            case _:
                pass

    def close(self) -> None: ...

    def _print(self, kind: str, content: msgspec.Struct) -> None:
        fields = msgspec.structs.asdict(content)
        fields = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
        print(json_line({"event": kind, **fields}), flush=True)


class _Plain:
    """A line every ten seconds and one for what matters, for logs and pipes."""

    def __init__(self, run: Run) -> None:
        self._next = 0.0
        print(printable(f"run {run.path}"), flush=True)

    def show(self, event: Event) -> None:
        match event:
            case Progress() if time.monotonic() >= self._next and event.env_steps:
                self._next = time.monotonic() + _PLAIN_EVERY_S
                print(_progress_line(event), flush=True)
            case _:
                for line in _lines(event):
                    print(line, flush=True)

    def close(self) -> None: ...


class _Rich:
    """A bar that stays in place, with lines above it."""

    def __init__(self, run: Run) -> None:
        self._console = SafeConsole()
        self._console.print(Text.assemble("run ", (printable(str(run.path)), "bold")))
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rest]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._bars.add_task("starting", total=None, rest="")
        self._bars.start()

    def show(self, event: Event) -> None:
        match event:
            case Progress():
                rest = f"{_rate(event)} steps/s  return {number(event.mean_return)}"
                self._bars.update(
                    self._task,
                    description=f"{event.state} {event.env_steps:,}",
                    completed=event.env_steps,
                    rest=f"{rest}  loss {number(event.loss)}  updates {event.updates:,}",
                )
            case Episode(flag=False):
                pass  # too many to print
            case _:
                if hasattr(event, "steps"):
                    self._bars.update(self._task, total=event.steps)
                for line in _lines(event):
                    self._console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self._bars.stop()


def _rate(p: Progress) -> str:
    return f"{p.env_steps_per_s:,.0f}" if p.state != "paused" else "–"


def _progress_line(p: Progress) -> str:
    left = "" if p.remaining_s is None or p.state == "paused" else f"  left {duration(p.remaining_s)}"
    return (
        f"{p.state} {p.env_steps:,} steps  {_rate(p)}/s  {p.updates:,} updates  {p.episodes:,} episodes  "
        f"return {number(p.mean_return)}  loss {number(p.loss)}  epsilon {p.epsilon:.3f}  beta {p.beta:.3f}{left}"
    )


def _lines(event: Any) -> list[str]:
    """What is printed of an event."""
    if isinstance(event, Finished):
        return [printable(_summary(event.summary)), printable(f"checkpoint {event.summary.checkpoint}")]
    line = _line(event)
    return [] if line is None else [printable(line)]


def _line(event: Any) -> str | None:
    match event:
        case Ready():
            return f"ready: {event.device}, {event.precision}, {event.lane_threads} lane threads"
        case Saved():
            return f"{event.kind} at {event.env_steps:,}: {event.path}"
        case Evaluation():
            best = ", the best so far" if event.best else ""
            far = f", {reached(event.mean_x_pos, 0)}" if event.mean_x_pos else ""
            return f"evaluation at {event.env_steps:,}: {judged(event)}{far}{best}"
        case Phase():
            return f"phase {event.phase} of {event.phases} at {event.env_steps:,}: {event.name}"
        case Log():
            return event.text if event.level == "info" else f"{event.level}: {event.text}"
        case Episode(flag=True):
            return f"flag! episode {event.episode:,}, lane {event.lane}, return {event.episode_return:.0f}"
        case _:
            return None


def _summary(s: Summary) -> str:
    return (
        f"done ({s.reason}): {s.env_steps:,} environment steps, {s.frames:,} frames, {s.updates:,} updates, "
        f"{s.episodes:,} episodes in {duration(s.wall_s)}; {s.env_steps_per_s:,.0f} steps/s, "
        f"{s.updates_per_s:,.1f} updates/s; mean return {number(s.mean_return)}"
    )
