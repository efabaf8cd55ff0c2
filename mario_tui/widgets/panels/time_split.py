"""Time of a run's processes by stopwatch section."""

from __future__ import annotations

from rich.text import Text

from engine.protocol.messages import Split
from mario_tui.data.feed import Snapshot
from mario_tui.widgets.base.panel import Panel, bar

_LEAST = 0.005


class TimeSplitPanel(Panel):
    """Shares of the coordinator's loop as bars, then one line per other process."""

    def __init__(self) -> None:
        super().__init__("Time per section", id="time", number=10)

    def is_needed(self, snapshot: Snapshot) -> bool:
        return snapshot.time_splits is not None  # a recording may not contain them

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        splits = [
            split for split in (snapshot.time_splits.processes if snapshot.time_splits else []) if split.seconds > 0
        ]
        if not splits:
            return Text("not measured yet", style="dim")
        leader, *others = splits
        text = Text(no_wrap=True, overflow="ellipsis")
        room = max(4, min(24, width - 30))
        text.append(f"{leader.process:<12}{'of the loop':<{room + 5}}{'threads':>8}", style="bold")
        for section, share in _largest(leader):
            text.append(f"\n{section:<12}").append(bar(share, room), style="blue")
            text.append(f"{share:>5.0%}{leader.busy.get(section, 0.0):>8.2f}")
        rest = 1 - sum(leader.loop.values())
        text.append(f"\n{'other':<12}{bar(rest, room)}{max(0.0, rest):>5.0%}", style="dim")
        for split in others:
            text.append(f"\n{split.process:<12}", style="bold")
            text.append("  ".join(f"{section} {share:.0%}" for section, share in _largest(split)))
        return text


def _largest(split: Split) -> list[tuple[str, float]]:
    """Sections of the loop, longest first."""
    shares = [(section, share) for section, share in split.loop.items() if share >= _LEAST]
    return sorted(shares, key=lambda each: -each[1])
