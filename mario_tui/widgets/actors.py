"""Rewards per actor, a row for each lane: sparkline, last, mean and best return, epsilon."""

from __future__ import annotations

import math

from rich.text import Text

from mario_tui.feed import Snapshot
from mario_tui.widgets.panel import Panel, sparkline


class ActorsPanel(Panel):
    """The table scrolls in its container where there are more lanes than rows."""

    def __init__(self) -> None:
        super().__init__("Actors: return of each lane", id="actors")

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        if snapshot.lanes is None:
            return Text("no lane has reported yet", style="dim")
        wide = width >= 56
        spark = max(4, min(20, width - (40 if wide else 32)))
        head = f"{'lane':<5} {'last':>5} {'mean':>5} {'best':>5} {'eps':>5}"
        console = any(lane.best_x for lane in snapshot.lanes.lanes)
        head += f" {'best x' if console else 'score':>6} " if wide else " "
        text = Text(no_wrap=True, overflow="crop")
        text.append(head + "recent", style="bold")
        for lane in snapshot.lanes.lanes:
            text.append(f"\n{lane.actor}.{lane.lane:<3} ")
            for value, style in ((lane.last_return, ""), (lane.mean_return, "bold"), (lane.best_return, "green")):
                text.append(f"{'–' if math.isnan(value) else f'{value:.0f}':>5} ", style=style)
            text.append(f"{lane.epsilon:>5.3f} ", style="dim")
            if wide:
                flags = f"⚑{lane.clears}" if lane.clears else ""
                text.append(
                    f"{flags or (lane.best_x if console else lane.best_score):>6} ", style="yellow" if flags else ""
                )
            text.append(sparkline(lane.returns, spark), style="cyan")
        return text
