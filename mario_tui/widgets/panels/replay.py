"""Replay size and the schedules of beta and epsilon."""

from __future__ import annotations

from rich.text import Text

from mario_tui.data.feed import Snapshot
from mario_tui.data.format import counted, fraction, short
from mario_tui.widgets.base.panel import Panel, bar


class ReplayPanel(Panel):
    """Fill, beta annealing, mean epsilon, updates."""

    def __init__(self) -> None:
        super().__init__("Replay and schedules", id="replay", number=2)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        p = snapshot.progress
        if p is None:
            return Text("nothing stored yet", style="dim")
        room = max(4, min(24, width - 24))
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("fill    ").append(bar(fraction(p.replay_size, p.replay_capacity), room), style="cyan")
        text.append(f" {short(p.replay_size)}/{short(p.replay_capacity)}\n")
        text.append("beta    ").append(bar(p.beta, room), style="magenta").append(f" {p.beta:.3f}\n")
        text.append("epsilon ").append(bar(p.epsilon, room), style="yellow").append(f" {p.epsilon:.3f}\n")
        if p.burnin_left and snapshot.live:
            text.append(f"burn-in: learning starts in {counted(p.burnin_left, 'step')}", style="dim")
        else:
            rate = f", {p.updates_per_s:.1f}/s" if snapshot.running else ""
            text.append(f"{counted(p.updates, 'update')}{rate}, lr {p.learning_rate:.1e}", style="dim")
        return text
