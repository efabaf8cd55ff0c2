"""State of a run's curriculum: phase, share of stages or reward weights, and the condition for the next phase."""

from __future__ import annotations

import math

from rich.text import Text

from engine.protocol.messages import Part
from mario_tui.data.feed import Snapshot
from mario_tui.widgets.base.panel import Panel, bar

_MOST = 6


class CurriculumPanel(Panel):
    """One line per stage or reward term in use, the newest if there are many. Hidden in runs without a curriculum."""

    def __init__(self) -> None:
        super().__init__("Curriculum", id="curriculum", number=12)

    def is_needed(self, snapshot: Snapshot) -> bool:
        return snapshot.curriculum is not None

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        curriculum = snapshot.curriculum
        if curriculum is None:
            return text
        text.append(f"phase {curriculum.phase} of {curriculum.phases}: {curriculum.name}", style="bold")
        if curriculum.goal:
            text.append(f"\n{curriculum.goal}", style="dim")
        counting = [part for part in curriculum.parts if part.weight][-_MOST:]
        name_width = max((len(part.name) for part in counting), default=0)
        room = max(4, min(16, width - name_width - 27))
        for part in counting:
            text.append("\n").append_text(_row(part, name_width, room))
        return text


def _row(part: Part, name_width: int, room: int) -> Text:
    text = Text(f"{part.name:<{name_width}} ")
    text.append(bar(part.weight, room), style="magenta").append(f" {part.weight:4.2f}")
    if not math.isnan(part.clear_rate):
        text.append(f"  {part.clear_rate:>4.0%} of {part.episodes} cleared", style="green")
    return text
