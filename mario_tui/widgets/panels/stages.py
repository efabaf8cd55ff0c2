"""Time of a run's processes by stopwatch stage."""

from __future__ import annotations

from rich.text import Text

from engine.protocol.messages import Split
from mario_tui.data.feed import Snapshot
from mario_tui.widgets.base.panel import Panel, bar

_LEAST = 0.005


class StagesPanel(Panel):
    """Shares of the coordinator's loop as bars, then one line per other process."""

    def __init__(self) -> None:
        super().__init__("Time per stage", id="stages", number=10)
        self.add_class("-off")

    def show(self, snapshot: Snapshot) -> None:
        self.set_class(snapshot.stages is None, "-off")  # a recording may not contain them
        super().show(snapshot)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        splits = [split for split in (snapshot.stages.processes if snapshot.stages else []) if split.seconds > 0]
        if not splits:
            return Text("not measured yet", style="dim")
        leader, *others = splits
        text = Text(no_wrap=True, overflow="ellipsis")
        room = max(4, min(24, width - 30))
        text.append(f"{leader.process:<12}{'of the loop':<{room + 5}}{'threads':>8}", style="bold")
        for stage, share in _largest(leader):
            text.append(f"\n{stage:<12}").append(bar(share, room), style="blue")
            text.append(f"{share:>5.0%}{leader.busy.get(stage, 0.0):>8.2f}")
        rest = 1 - sum(leader.loop.values())
        text.append(f"\n{'other':<12}{bar(rest, room)}{max(0.0, rest):>5.0%}", style="dim")
        for split in others:
            text.append(f"\n{split.process:<12}", style="bold")
            text.append("  ".join(f"{stage} {share:.0%}" for stage, share in _largest(split)))
        return text


def _largest(split: Split) -> list[tuple[str, float]]:
    """Stages of the loop, longest first."""
    shares = [(stage, share) for stage, share in split.loop.items() if share >= _LEAST]
    return sorted(shares, key=lambda each: -each[1])
