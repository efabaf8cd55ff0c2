"""What a run without the dashboard prints: a progress bar, plain lines or JSON lines."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Protocol

from rich.progress import (
    BarColumn,
    TaskProgressColumn,
    TextColumn,
)
from rich.progress import (
    Progress as Bars,
)
from rich.table import Column
from rich.text import Text

from engine.protocol.json_lines import JSON_EVENTS, Gap, line_of
from engine.protocol.messages import (
    Changed,
    Episode,
    Evaluation,
    Event,
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
from engine.runs.run import end_state
from engine.runtime.text import printable
from mario_tui.data.format import counted, done_share, duration, number, number_or_whole
from mario_tui.data.outcome_text import is_cleared, judged, reached
from mario_tui.terminal.safe_console import SafeConsole

_PLAIN_EVERY_S = 10.0
_JSON_EVERY_S = 1.0
_WIDE = 110
"""Columns from which on the progress bar has room for loss and updates beside it."""
KINDS = {kind.__name__: name for kind, (name, _) in JSON_EVENTS.items()} | {Log.__name__: "log"}
"""Names of events in a `gap`: log lines are not only warnings."""


class Display(Protocol):
    def show(self, event: Event | Gap) -> None:
        """Show one event."""

    def close(self) -> None:
        """Restore the terminal."""


class JSONLines:
    """One JSON object per line; the last one tells how the run ended."""

    def __init__(self) -> None:
        self._next, self._outcome = 0.0, Outcome()

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
            case _:
                pass
        if (line := line_of(event, self._outcome)) is not None:
            print(line, flush=True)

    def close(self) -> None: ...


class PlainLines:
    """A progress line every ten seconds and a line per notable event, for logs and pipes."""

    def __init__(self) -> None:
        self._next, self._outcome = 0.0, Outcome()

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

    def close(self) -> None: ...


class ProgressBar:
    """A progress bar, with a line above it per notable event."""

    def __init__(self) -> None:
        self._console, self._outcome = SafeConsole(), Outcome()
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
                rest = f"{_left(event)}{_rate(event)} steps/s  return {number(event.mean_return)}"
                if self._console.width >= _WIDE:
                    rest += f"  loss {number(event.loss)}  updates {event.updates:,}"
                self._bars.update(
                    self._task,
                    spent=duration(event.wall_s),
                    description=f"{event.state} {event.env_steps:,}",
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
    left = f"  {_left(p)}".rstrip()
    beta = f"  beta {p.beta:.3f}" if p.beta else ""  # 0 in a uniform replay
    random = f" ({p.random_share:.1%} random)"
    return (
        f"{p.state} {counted(p.env_steps, 'step')}  {_rate(p)}/s  {counted(p.updates, 'update')}  "
        f"{counted(p.episodes, 'episode')}  "
        f"return {number(p.mean_return)}  loss {number(p.loss)}  epsilon {p.epsilon:.3f}{random}{beta}{left}"
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
        case Phase():
            return f"phase {event.phase} of {event.phases} at {event.env_steps:,}: {event.name}"
        case Changed():
            return f"{event.name.replace('_', ' ')} at {event.env_steps:,}: {event.before:g} → {event.value:g}"
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
