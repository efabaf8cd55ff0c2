"""A run in words: the header with its state and progress, its log, and the panels explained over the first dashboard
that somebody sees.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from engine.protocol.messages import (
    Alert,
    Changed,
    Episode,
    Evaluation,
    Failed,
    FinalEvaluation,
    Finished,
    KeptEvent,
    Log,
    Phase,
    Ready,
    Saved,
)
from engine.protocol.outcome import Outcome
from engine.protocol.results import FinalResult
from engine.runs.run import is_complete
from engine.runtime.text import printable
from mario_tui.data.format import (
    counted,
    done_share,
    duration,
    judged,
    judging,
    number_or_whole,
    out_of,
    reached,
    result_text,
    short,
)
from mario_tui.data.keys import PANELS
from mario_tui.data.run_status import RunStatus, Snapshot
from mario_tui.widgets.base.panel import MovableLines, Panel, bar

_REASON_LINES = 3
"""Lines for the reason of a failure."""


def state_text(status: RunStatus) -> Text:
    """A state as symbol and word, so that it does not depend on colour."""
    return Text(f"{status.symbol} {status}", style=f"bold {status.colour}")


class RunHeader(Panel):
    """Run, runner, device and state; steps, rate, elapsed and remaining time."""

    def __init__(self, run: str, read_only: bool) -> None:
        """`run`: its name, as long as no host has told it."""
        super().__init__("", id="header", classes="")
        self.framed, self.can_focus = False, False
        self._read_only = read_only
        self._run = run
        self.unseen: Sequence[str] = ()
        """Keys and titles of the panels for which there is no room."""

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        hello, progress = snapshot.hello, snapshot.progress
        status, reason = snapshot.status, snapshot.reason
        line = Text(no_wrap=True, overflow="ellipsis")
        if self._read_only:
            line.append("read-only", style="bold reverse").append("  ")
        line.append_text(state_text(status))
        if snapshot.silent_s:
            line.append(f": not responding for {snapshot.silent_s:,} s", style="red")
        line.append(f"  {hello.run if hello else self._run}", style="bold")
        if hello is not None:
            line.append(f"  {hello.runner}")
        if snapshot.ready is not None:
            line.append(f"  {snapshot.ready.device} {snapshot.ready.precision}", style="dim")
        if alerts := sum(isinstance(event, Alert) for event in snapshot.others):
            line.append(f"  ! {counted(alerts, 'alert')}", style="bold red")
        if self.unseen:
            room, (*others, last) = width - line.cell_len - 2, (name[0] for name in self.unseen)
            keys = f"{', '.join(others)} or {last}" if others else last
            forms = (
                f"more panels: {', '.join(self.unseen)}",
                f"press {keys} for more panels", f"{keys}: more panels", f"{keys}: more",
            )  # fmt: skip
            form = next((form for form in forms if len(form) <= room), "")
            line.append(f"  {form.rjust(room)}", style="dim")
        line.append("\n")
        if status is RunStatus.FAILED and reason:
            reason = " ".join(reason.split())
            if hello is not None and progress is not None:
                reason = f"at step {out_of(progress.env_steps, hello.steps)}: {reason}"
            elif hello is not None:
                reason = f"Failed before the first step: {reason.rstrip('.')}. See run.log."
            return line.append("\n".join(textwrap.wrap(reason, max(10, width))[:_REASON_LINES]), style="red")
        if hello is None or progress is None:
            engine = "waiting for the engine" if hello is None else "building networks and starting lanes"
            waiting = {RunStatus.STARTING: engine, RunStatus.CONNECTING: "waiting for the run's host"}
            ended = reason or "Nothing was recorded. See run.log."
            return line.append(waiting.get(status, ended), style="dim")
        if status is RunStatus.STOPPED:
            counts = f"stopped at {out_of(progress.env_steps, hello.steps)} steps "
        else:
            counts = f"step {out_of(progress.env_steps, hello.steps, '/')} "
        if status is RunStatus.JUDGING:
            return line.append(f"{counts}its best policy plays {judging(progress)}")
        rate, left = "–", "–"
        if snapshot.running:
            rate, left = f"{progress.env_steps_per_s:,.0f}", duration(progress.remaining_s)
        rates = f" elapsed {duration(progress.wall_s)}"
        if snapshot.live or status is RunStatus.LOST:
            rates = f" {rate} steps/s {rates}  left {left}"
        room = width - len(counts) - len(rates)
        line.append(counts)
        if room >= 6 and hello.steps:
            line.append(bar(done_share(hello, progress), min(room, 40)), style="green")
        return line.append(rates)


_STYLES = {"info": "", "warning": "yellow", "error": "bold red"}


class LogPanel(Panel, MovableLines):
    """The newest lines that fit, newest last; half of them are reserved for events other than episodes.

    With a filter, all lines that contain its words; scrolled back, the lines do not move when new ones arrive.
    """

    def __init__(self) -> None:
        super().__init__("Log", id="log", key="8")
        self._words: list[str] = []
        self._top: KeptEvent | None = None
        """Scrolled back: the newest event that is shown."""
        self._known: Sequence[KeptEvent] = ()
        """Scrolled back: the events that matched the filter when the log was last drawn; `_top` is one of them."""
        self._fitting = 0
        """Events that have room, where the log has the screen."""

    def filter(self, text: str) -> None:
        """Show only lines that contain all these words."""
        self._words = text.lower().split()
        self._top = None
        self.repaint()

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        room = max(1, self.body[1])
        found = self._found(snapshot) if self._words or self._top is not None else []
        self._hold(found)
        chosen = found if self._words or self._top is not None else self._newest(snapshot, room)
        if not chosen:
            text = "no line matches the filter" if self._words else "no events yet"
            return Text(text, style="dim")
        last = len(chosen) if self._top is None else 1 + _place(chosen, self._top)
        if self.has_class("-alone"):
            lines = self._whole(chosen[:last], snapshot.outcome, width, room)
        else:
            shown = chosen[max(0, last - room) : max(last, min(room, len(chosen)))]
            lines = [describe(event, snapshot.outcome) for event in shown]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def _whole(self, events: Sequence[KeptEvent], outcome: Outcome, width: int, room: int) -> list[Text]:
        """The lines of the last events that fit, without cutting any: long ones take several."""
        lines: list[Text] = []
        self._fitting = 0
        for event in reversed(events):
            more = describe(event, outcome).wrap(self.app.console, width)
            if lines and len(more) + len(lines) > room:
                break
            lines = [*more, *lines]
            self._fitting += 1
        return lines[-room:]

    def _hold(self, found: Sequence[KeptEvent]) -> None:
        """Scrolled back, stay at the same event. If the bounded log has lost it, go on to the next newer one that is
        left."""
        if self._top is None:
            return
        left = {id(event) for event in found}
        newer = self._known[_place(self._known, self._top) :]
        self._top = next((event for event in newer if id(event) in left), None)
        self._known = found

    def note(self) -> str:
        parts = [f"filter: {' '.join(self._words)}"] if self._words else []
        if self._top is not None:
            parts.append("older lines; end: newest")
        return ", ".join(parts)

    def _newest(self, snapshot: Snapshot, room: int) -> list[KeptEvent]:
        """At most `room` events, oldest first."""
        episodes_left = room - min(len(snapshot.others), room // 2)
        chosen: list[KeptEvent] = []
        for event in reversed(snapshot.events):
            if len(chosen) >= room:
                break
            if isinstance(event, Episode) and not event.success:
                episodes_left -= 1
                if episodes_left < 0:
                    continue
            chosen.append(event)
        return chosen[::-1]

    def _found(self, snapshot: Snapshot) -> list[KeptEvent]:
        return [
            event
            for event in snapshot.events
            if not self._words or all(word in describe(event, snapshot.outcome).plain.lower() for word in self._words)
        ]

    def action_move(self, lines: int) -> None:
        """Move by some lines, up to older ones; at the newest line it follows the run again."""
        found = self._found(self._snapshot)
        if not found:
            return
        now = len(found) - 1 if self._top is None else _place(found, self._top)
        least = 0 if self.has_class("-alone") else min(self.body[1], len(found)) - 1
        to = max(now + lines, least)
        self._top, self._known = None if to >= len(found) - 1 else found[to], found
        self.repaint()

    def action_page(self, pages: int) -> None:
        shown = self._fitting if self.has_class("-alone") else self.body[1]
        self.action_move(pages * max(1, shown - 1))


def _place(events: Sequence[KeptEvent], wanted: KeptEvent) -> int:
    """Return where this very event is; the end if it is not there."""
    return next((at for at, event in enumerate(events) if event is wanted), len(events) - 1)


def describe(event: KeptEvent, outcome: Outcome) -> Text:
    """One line for an event of a game with this outcome."""
    match event:
        case Ready():
            return Text(
                f"ready: {event.device}, {event.precision}, {counted(event.lane_threads, 'lane thread')}", style="dim"
            )
        case Episode():
            text = Text(f"{short(event.env_steps):>6}  lane {event.actor}.{event.lane}: return ")
            parts = [
                number_or_whole(event.episode_return),
                reached(outcome, event.results),
                counted(event.length, "step"),
            ]
            text.append(", ".join(filter(None, parts)))
            if event.success and outcome.goal is not None:
                text.append(f"  ⚑ {outcome.goal.label}!", style="bold yellow")
            return text
        case Evaluation():
            best = ", best so far" if event.best else ""
            return Text(f"{short(event.env_steps):>6}  evaluation: {judged(outcome, event)}{best}", style="bold")
        case FinalEvaluation():
            return Text(
                f"{short(event.env_steps):>6}  result: {result_text(outcome, FinalResult.of(event, outcome))}",
                style="bold green",
            )
        case Changed():
            change = f"{event.name.replace('_', ' ')}: {event.before:g} → {event.value:g}"
            return Text(f"{short(event.env_steps):>6}  {change}", style="magenta")
        case Phase():
            phase = f"curriculum: phase {event.phase} of {event.phases}, {event.name}"
            return Text(f"{short(event.env_steps):>6}  {printable(phase)}", style="bold magenta")
        case Saved():
            name = event.path.rsplit("/", 1)[-1]
            return Text(f"{short(event.env_steps):>6}  {event.kind} saved: {printable(name)}", style="green")
        case Log():
            prefix = "" if event.level == "info" else f"{event.level}: "
            return Text(f"{'':>6}  {prefix}{printable(event.text)}", style=_STYLES[event.level])
        case Alert():
            return Text(f"{short(event.env_steps):>6}  alert: {printable(event.text)}", style=_STYLES["error"])
        case Finished():
            s = event.summary
            how = "finished" if is_complete(s.reason) else f"stopped at {s.env_steps:,} steps"
            checkpoint = f"; checkpoint {s.checkpoint}" if s.checkpoint else ""
            return Text(printable(f"{how}: {s.reason}{checkpoint}"), style="bold green")
        case Failed():
            return Text(printable(f"failed: {event.reason}; log: {event.log_path}"), style="bold red")


class Introduction(Static):
    """Closes on the next key press."""

    def __init__(self, help_key: str, game_key: str) -> None:
        panels = Table.grid(padding=(0, 2))
        for title, text in PANELS.items():
            panels.add_row(Text(title, style="bold"), text)
        end = f"any key closes this   {help_key}: the same with all keys   {game_key}: the game"
        super().__init__(Group(panels, Text(end, style="dim")), id="introduction")
        self.border_title = "What you see"
