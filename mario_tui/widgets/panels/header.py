"""The header: two lines with the run, its state and its progress."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from mario_tui.data.feed import Snapshot
from mario_tui.data.format import done_share, duration, out_of
from mario_tui.data.run_status import RunStatus
from mario_tui.widgets.base.panel import Panel, bar

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
        rate, left = "–", "–"
        if status is RunStatus.RUNNING:
            rate, left = f"{progress.env_steps_per_s:,.0f}", duration(progress.remaining_s)
        rates = f" elapsed {duration(progress.wall_s)}"
        if snapshot.live or status is RunStatus.LOST:
            rates = f" {rate} steps/s {rates}  left {left}"
        room = width - len(counts) - len(rates)
        line.append(counts)
        if room >= 6 and hello.steps:
            line.append(bar(done_share(hello, progress), min(room, 40)), style="green")
        return line.append(rates)
