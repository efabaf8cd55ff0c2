"""The two lines on top: which run this is and how far it has come."""

from __future__ import annotations

from rich.text import Text

from engine.messages import State
from engine.runs import ACTIVE
from mario_tui.feed import Snapshot
from mario_tui.format import duration
from mario_tui.widgets.panel import Panel, bar

SYMBOLS: dict[State, tuple[str, str]] = {
    "starting": ("◌", "cyan"),
    "running": ("●", "green"),
    "paused": ("‖", "yellow"),
    "stopping": ("◍", "yellow"),
    "finished": ("✓", "green"),
    "failed": ("✗", "red"),
    "lost": ("?", "red"),
    "damaged": ("!", "red"),
}


def state_text(state: State) -> Text:
    """A state as symbol and word; never as colour alone."""
    symbol, colour = SYMBOLS[state]
    return Text(f"{symbol} {state}", style=f"bold {colour}")


class RunHeader(Panel):
    """Run, runner, device and state; step, rate, elapsed and remaining time."""

    def __init__(self) -> None:
        super().__init__("", id="header", classes="")
        self.framed, self.can_focus = False, False
        self.fallback: tuple[str, State] = ("", "starting")  # before the host answers, or when it is gone

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        hello, progress = snapshot.hello, snapshot.progress
        name, state = self.fallback
        gone = hello is not None and not snapshot.connected and snapshot.end is None
        if progress is not None and not gone:
            state = progress.state
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append_text(state_text(state))
        line.append(f"  {hello.run if hello else name}", style="bold")
        if hello is not None:
            line.append(f"  {hello.runner}")
        if snapshot.ready is not None:
            line.append(f"  {snapshot.ready.device} {snapshot.ready.precision}", style="dim")
        line.append("\n")
        if hello is None or progress is None:
            coming = "waiting for the engine" if hello is None else "building networks and starting lanes"
            ended = "nothing was recorded; its run.log says what there is to say"
            return line.append(coming if state in ACTIVE else ended, style="dim")
        share = progress.env_steps / hello.steps
        counts = f"step {progress.env_steps:,}/{hello.steps:,} "
        rate, left = "–", "–"
        if state == "running":
            rate, left = f"{progress.env_steps_per_s:,.0f}", duration(progress.remaining_s)
        rates = f" {rate} steps/s  elapsed {duration(progress.wall_s)}  left {left}"
        room = width - len(counts) - len(rates)
        line.append(counts)
        if room >= 6:
            line.append(bar(share, min(room, 40)), style="green")
        return line.append(rates)
