"""A run without the dashboard: a client of its host with a progress bar, plain lines or JSON lines.

Output goes to stdout, errors go to stderr. Ctrl-C or SIGTERM writes a checkpoint and a summary and exits with 0; a
second Ctrl-C ends the run at once, even if the host does not respond. SIGHUP is ignored.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from engine.config.runners import torchrun_rank
from engine.errors import UserError
from engine.host.client import HostClient, HostGone, HostProcess, InvalidMessage, attach
from engine.protocol.commands import Stop
from engine.protocol.json_lines import ALWAYS, JSON_EVENTS, Gap, line_of, name_of
from engine.protocol.messages import (
    Alert,
    Changed,
    Episode,
    Evaluation,
    Event,
    Failed,
    FinalEvaluation,
    Finished,
    Hello,
    Log,
    Phase,
    Progress,
    Ready,
    Saved,
    Summary,
)
from engine.protocol.outcome import Outcome
from engine.protocol.results import FinalResult
from engine.runs.recording import read_recording
from engine.runs.run import Run, end_state
from engine.runtime.text import printable
from mario_tui.data.feed import Received, recording
from mario_tui.data.format import (
    counted,
    done_share,
    duration,
    is_cleared,
    judged,
    judging,
    measured,
    number,
    number_or_whole,
    reached,
    result_text,
)
from mario_tui.data.run_status import RunStatus, exit_status
from mario_tui.launch import Plan, busy_warning
from mario_tui.terminal.console import SafeConsole, can_move
from mario_tui.terminal.output import NO_SPACE, discard_output, discard_unwritable

_PLAIN_EVERY_S = 10.0
_JSON_EVERY_S = 1.0
_WIDE = 110
"""Columns from which on the progress bar has room for loss and updates beside it."""
KINDS = {kind.__name__: name for kind, (name, _) in JSON_EVENTS.items()} | {Log.__name__: "log"}
"""Names of events in a `gap`: log lines are not only warnings."""


class Display(ABC):
    """Shows what a run tells."""

    def __init__(self) -> None:
        self._next, self._outcome = 0.0, Outcome()

    @abstractmethod
    def show(self, event: Event | Gap) -> None:
        """Show one event."""

    def close(self) -> None:  # noqa: B027  # lines leave nothing behind
        """Restore the terminal."""


class JSONLines(Display):
    """One JSON object per line; the last one tells how the run ended. `names`: the events that are wanted."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = {*names, *ALWAYS}

    def show(self, event: Event | Gap) -> None:
        match event:
            case Hello():
                self._outcome = event.outcome
            case Progress() if time.monotonic() < self._next:
                return
            case Progress():
                self._next = time.monotonic() + _JSON_EVERY_S
            case Log(level="info"):
                say(event.text)
                return
            case Gap():
                wanted = self._names | ({"log"} if "warning" in self._names else set())
                event = Gap({kind: count for kind, count in event.missing.items() if kind in wanted})
                if not event.missing:
                    return
            case _:
                pass
        if name_of(event) in self._names and (line := line_of(event, self._outcome)) is not None:
            print(line, flush=True)


class PlainLines(Display):
    """A progress line every ten seconds and a line per notable event, for logs and pipes."""

    def show(self, event: Event | Gap) -> None:
        match event:
            case Hello():
                self._outcome = event.outcome
                print(printable(f"run {event.path}"), flush=True)
            case Progress() if time.monotonic() >= self._next and event.env_steps:
                self._next = time.monotonic() + _PLAIN_EVERY_S
                print(progress_line(event), flush=True)
            case _:
                for line in _lines(event, self._outcome):
                    print(line, flush=True)


class ProgressBar(Display):
    """A progress bar, with a line above it per notable event."""

    def __init__(self) -> None:
        super().__init__()
        self._console = SafeConsole()
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[spent]}", table_column=Column(min_width=len("0:00:00"))),
            TextColumn("{task.fields[rest]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._bars.add_task("starting", total=None, spent="", rest="")
        self._hello: Hello | None = None

    def show(self, event: Event | Gap) -> None:
        match event:
            case Hello():
                self._outcome, self._hello = event.outcome, event
                self._console.print(Text.assemble("run ", (printable(event.path), "bold")))
                self._bars.start()
                self._bars.update(self._task, total=1.0)
            case Progress():
                rest = f"{_left(event)}{_rate(event)} steps/s  return {measured(event, 'mean_return')}"
                if self._console.width >= _WIDE:
                    rest += f"  loss {measured(event, 'loss')}  updates {event.updates:,}"
                if event.state == "judging":
                    rest = judging(event)
                self._bars.update(
                    self._task,
                    spent=duration(event.wall_s),
                    description=f"{RunStatus.of_progress(event)} {event.env_steps:,}",
                    completed=0.0 if self._hello is None else done_share(self._hello, event),
                    rest=rest,
                )
            case Episode(success=False):
                pass  # too many to print
            case _:
                if isinstance(event, Finished) and self._hello is not None:
                    end, steps = event.summary, event.summary.env_steps
                    state = end_state(steps, self._hello.steps, end.reason)
                    self._bars.update(self._task, description=f"{state} {steps:,}")
                for line in _lines(event, self._outcome):
                    self._console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self._bars.stop()


def _rate(p: Progress) -> str:
    return f"{p.env_steps_per_s:,.0f}" if p.state != "paused" else "–"


def _left(p: Progress) -> str:
    """The remaining time, and two spaces; empty if it is not known."""
    return "" if p.remaining_s is None or p.state == "paused" else f"left {duration(p.remaining_s)}  "


def progress_line(p: Progress) -> str:
    if p.state == "judging":
        return f"{p.state} {judging(p)}"
    left = f"  {_left(p)}".rstrip()
    beta = f"  beta {p.beta:.3f}" if p.beta else ""  # 0 in a uniform replay
    random = f" ({p.random_share:.1%} random)"
    return (
        f"{RunStatus.of_progress(p)} {counted(p.env_steps, 'step')}  {_rate(p)}/s  {counted(p.updates, 'update')}  "
        f"{counted(p.episodes, 'episode')}  "
        f"return {measured(p, 'mean_return')}  loss {measured(p, 'loss')}  "
        f"epsilon {measured(p, 'epsilon', '{:.3f}'.format)}{random}{beta}{left}"
    )


def _lines(event: Any, outcome: Outcome) -> list[str]:
    """The lines to print for an event."""
    if isinstance(event, Finished):
        checkpoint = event.summary.checkpoint
        return [printable(_summary(event.summary)), *([printable(f"checkpoint {checkpoint}")] if checkpoint else [])]
    line = _line(event, outcome)
    return [] if line is None else [printable(line)]


def _line(event: Any, outcome: Outcome) -> str | None:
    match event:
        case Ready():
            return f"ready: {event.device}, {event.precision}, {counted(event.lane_threads, 'lane thread')}"
        case Saved():
            return f"{event.kind} at {event.env_steps:,}: {event.path}"
        case Evaluation():
            best = ", best so far" if event.best else ""
            far = reached(outcome, event.results) if is_cleared(outcome) else ""
            return f"evaluation at {event.env_steps:,}: {', '.join(filter(None, (judged(outcome, event), far)))}{best}"
        case FinalEvaluation():
            return f"result: {result_text(outcome, FinalResult.of(event, outcome))}"
        case Phase():
            return f"phase {event.phase} of {event.phases} at {event.env_steps:,}: {event.name}"
        case Changed():
            return f"{event.name.replace('_', ' ')} at {event.env_steps:,}: {event.before:g} → {event.value:g}"
        case Alert():
            return f"alert at {event.env_steps:,}: {event.text}"
        case Log():
            return event.text if event.level == "info" else f"{event.level}: {event.text}"
        case Gap():
            missing = ", ".join(counted(count, kind) for kind, count in event.missing.items())
            return f"warning: this output was read too slowly; missing: {missing}"
        case Episode(success=True):
            goal = "goal" if outcome.goal is None else outcome.goal.label
            value = number_or_whole(event.episode_return)
            return f"{goal}! episode {event.episode:,}, lane {event.lane}, return {value}"
        case _:
            return None


def _summary(s: Summary) -> str:
    frames = f"{counted(s.frames, 'frame')}, " if s.frames else ""  # board games have none
    return (
        f"done ({s.reason}): {counted(s.env_steps, 'environment step')}, {frames}"
        f"{counted(s.updates, 'update')}, {counted(s.episodes, 'episode')} in {duration(s.wall_s)}; "
        f"{s.env_steps_per_s:,.0f} steps/s, "
        f"{s.updates_per_s:,.1f} updates/s; mean return {number(s.mean_return)}"
    )


def say(text: str) -> None:
    """Print a line on stderr, if that is possible."""
    with contextlib.suppress(OSError):
        print(printable(text), file=sys.stderr)


_RECONNECT_EVERY_S = 0.1
_WATCH_EVERY_S = 0.5
_KILL_AFTER_S = 10.0
"""A host that was told to end at once, or that never answered, is killed after this time."""


class _Follower:
    """Shows what a run tells, over all its connections, until its end. `show_past`: also what happened before.

    Args:
        closed: called when nobody reads the output any more.
    """

    def __init__(self, display: Display, show_past: bool, closed: Callable[[], None]) -> None:
        self._display, self._show_past, self._closed = display, show_past, closed
        self._received: Received | None = None
        self._shows = threading.Lock()
        self._lost = False
        self._told = ""
        """What a host has sent that is no message."""
        self.end: Finished | Failed | None = None

    def follow(self, connections: Iterable[HostClient], connected: Callable[[HostClient], None] | None = None) -> None:
        """Show the events of each connection. Raises `UserError` if there is none."""
        for client in connections:
            try:
                with client:
                    if connected is not None:
                        connected(client)
                    threading.Thread(target=_watch, args=(client, self.show), daemon=True, name="silence").start()
                    for event in client.events():
                        self.take(event)
                        if self.end is not None:
                            return
            except InvalidMessage as error:
                if str(error) != self._told:
                    self._told = str(error)
                    say(f"mario-tui: warning: {self._told}")

    def take(self, event: Event) -> None:
        """Show an event. A later greeting brings those that were missed."""
        news: Sequence[Event | Gap] = (event,)
        if not isinstance(event, Hello):
            assert self._received is not None
            self._received.add(event)
        elif self._received is None:
            self._received = Received(event)
            ends = Finished | Failed
            news = event, *(past for past in event.events if self._show_past or isinstance(past, ends))
        else:
            missing, known = self._received.catch_up(event)
            gap = Gap({KINDS.get(kind, kind.lower()): count for kind, count in missing.items()})
            news = [gap, *known] if missing else known
        for each in news:
            self.show(each)
            self.end = each if isinstance(each, Finished | Failed) else self.end

    def show(self, event: Event | Gap) -> None:
        try:
            with self._shows:
                self._display.show(event)
        except BrokenPipeError:  # the reader closed the pipe: `| head`, or `| tee` on Ctrl-C
            discard_output(sys.stdout)
            self._closed()
        except OSError as error:  # the run continues
            if error.errno not in NO_SPACE:  # the terminal was closed
                discard_output(sys.stdout, sys.stderr)
            elif not self._lost:
                self._lost = True
                say(f"mario-tui: warning: output is lost: {error.strerror}")


def _display(log_format: str | None, events: Collection[str]) -> Display:
    """The display of a format; without one, that of what standard output is."""
    displays: dict[str, Callable[[], Display]] = {
        "rich": ProgressBar,
        "plain": PlainLines,
        "json": partial(JSONLines, events),
    }
    return displays[log_format or ("rich" if can_move(sys.stdout) else "plain")]()


def train_headless(plan: Plan, log_format: str | None, events: Collection[str]) -> int:
    """Start the run and follow it to its end in format "rich", "plain" or "json", which prints only the named events.
    Returns the exit status."""
    stopper = _Stopper()
    host = plan.start(foreground=True)
    stopper.set_host(host)
    if warning := busy_warning(host.run):
        print(printable(f"mario-tui: warning: {warning}"), file=sys.stderr)
    display = _display(log_format, events)
    follower = _Follower(display, False, lambda: stopper.stop("its output pipe was closed"))
    try:
        follower.follow(_connections(host), stopper.set_client)
        if follower.end is None and _has_told_its_end(host):  # this client was too slow to receive it
            with contextlib.suppress(UserError):
                follower.take(read_recording(host.run.history_path)[0])
    except UserError as error:  # the host did not start
        print(f"mario-tui: {error}", file=sys.stderr)
        stopper.kill_host_later()
        return 1
    finally:
        with contextlib.suppress(OSError):
            display.close()
        discard_unwritable(sys.stdout)
        host.process.stdin and host.process.stdin.close()
        host.process.wait()
    return exit_status(host.run, follower.end)


def follow(run: Run, log_format: str | None, events: Collection[str], *, show_past: bool) -> int:
    """Print what `train_headless` prints, of a run that is there already; `show_past`: also what is recorded of
    before. Leaves the run alone. Returns its exit status. Raises `UserError` if its host can't be reached."""
    display = _display(log_format, events)

    def close() -> None:
        raise BrokenPipeError

    follower = _Follower(display, show_past, close)
    try:
        follower.follow(_attached(run))
        if follower.end is None:
            with contextlib.suppress(UserError):  # it may have none; then its record tells how it ended
                for event in recording(run):
                    if follower.end is None:  # the end is in the greeting, and nothing is told after it
                        follower.take(event)
    finally:
        with contextlib.suppress(OSError):
            display.close()
    return exit_status(run, follower.end)


def _attached(run: Run) -> Iterator[HostClient]:
    """Connections to the host of a run: another one whenever one has ended and a host lives."""
    while (client := attach(run)) is not None:
        yield client
        time.sleep(_RECONNECT_EVERY_S)


def _connections(host: HostProcess) -> Iterator[HostClient]:
    """Connections to the host: another one whenever one has ended and the host lives on."""
    yield host.connect()
    while not host.ended:
        with contextlib.suppress(UserError):
            yield HostClient(host.run)
        time.sleep(_RECONNECT_EVERY_S)


def _watch(client: HostClient, show: Callable[[Event], None]) -> None:
    """In a thread: tell when the host does not respond, and when it does again."""
    since = 0.0
    while not client.closed:
        silent_s = client.silent_s
        if silent_s and not since:
            since = time.monotonic() - silent_s
            show(Log(at=time.time(), level="warning", text=f"the host is not responding for {silent_s} s"))
        elif not silent_s and since:
            text = f"the host responds again, after {time.monotonic() - since:.0f} s"
            since = 0.0
            show(Log(at=time.time(), level="warning", text=text))
        time.sleep(_WATCH_EVERY_S)


def _has_told_its_end(host: HostProcess) -> bool:
    """Return whether the host that has exited wrote into the run's record and recording how the run ended."""
    record = host.run.record()
    return record.pid == host.process.pid and record.state in ("finished", "failed")


class _Stopper:
    """Turns signals into Stop commands, and keeps those that arrive before there is a connection.

    After the second Ctrl-C the host is killed unless it ends in time, even if it is suspended. The third kills it at
    once. SIGTERM is never more than a request to stop in order: a service manager sends it to every process of a run.
    """

    def __init__(self) -> None:
        self._host: HostProcess | None = None
        self._client: HostClient | None = None
        self._pending: list[Stop] = []
        self._requested = False
        self._interrupts = 0
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, self._received)
        # torchrun passes on that its terminal was closed, and then ends.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if torchrun_rank() is None else self._received)

    def set_host(self, host: HostProcess) -> None:
        self._host = host
        if self._interrupts > 1:
            self.kill_host_later()

    def kill_host_later(self) -> None:
        """Kill the host, and with it every process it has started, if it is still alive in a few seconds."""
        if self._host is not None:
            timer = threading.Timer(_KILL_AFTER_S, self._host.process.kill)
            timer.daemon = True
            timer.start()

    def set_client(self, client: HostClient) -> None:
        self._client = client
        self._send()

    def stop(self, reason: str) -> None:
        """Stop the run, unless a stop was already requested."""
        if not self._requested:
            self._request(reason)

    def _received(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += signum == signal.SIGINT
        at_once = signum == signal.SIGINT and self._interrupts > 1
        self._request(f"received {signal.Signals(signum).name}", at_once)
        if at_once and self._interrupts == 2:
            self.kill_host_later()
        elif at_once and self._host is not None:
            self._host.process.kill()

    def _request(self, reason: str, at_once: bool = False) -> None:
        self._requested = True
        self._pending.append(Stop(reason=reason, at_once=at_once))
        self._send()

    def _send(self) -> None:
        while self._client is not None:
            try:
                stop = self._pending.pop(0)
                self._client.send(stop)
            except IndexError:  # none is left: another signal may come at any time, and send them
                return
            except HostGone:
                self._pending.insert(0, stop)  # for the next connection, if there is one
                return
