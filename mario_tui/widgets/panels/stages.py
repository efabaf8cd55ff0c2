"""Where the time of each of a run's processes goes, stage by stage."""

from __future__ import annotations

from rich.text import Text

from engine.protocol.messages import Split
from mario_tui.data.feed import Snapshot
from mario_tui.widgets.base.panel import Panel, bar

_LEAST = 0.005


class StagesPanel(Panel):
    """Shares of the leading process's loop as bars, then a line for each other process."""

    def __init__(self) -> None:
        super().__init__("Where the time goes", id="stages", number=10)
        self.add_class("-off")

    def show(self, snapshot: Snapshot) -> None:
        self.set_class(snapshot.stages is None, "-off")  # in a recording without
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
        text.append(f"\n{'the rest':<12}{bar(rest, room)}{max(0.0, rest):>5.0%}", style="dim")
        for split in others:
            text.append(f"\n{split.process:<12}", style="bold")
            text.append("  ".join(f"{stage} {share:.0%}" for stage, share in _largest(split)))
        return text


def _largest(split: Split) -> list[tuple[str, float]]:
    """Stages of a loop, the longest first."""
    shares = [(stage, share) for stage, share in split.loop.items() if share >= _LEAST]
    return sorted(shares, key=lambda each: -each[1])
