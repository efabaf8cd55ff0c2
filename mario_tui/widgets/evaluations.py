"""How good the policy is: flags while training, the first clear, and every greedy evaluation."""

from __future__ import annotations

from rich.text import Text

from engine.messages import Episode, Evaluation
from mario_tui.feed import Snapshot
from mario_tui.format import number, short
from mario_tui.widgets.panel import Panel, bar

_RECENT = 100


class EvaluationsPanel(Panel):
    """Mario: the stage with its clear rate; then the evaluations, newest first."""

    def __init__(self) -> None:
        super().__init__("Stages and evaluations", id="evaluations", number=7)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        hello = snapshot.hello
        if hello is not None and hello.game == "mario":
            self._stage(text, snapshot, hello.stage, width)
        evaluations = [event for event in snapshot.others if isinstance(event, Evaluation)]
        if not evaluations:
            return text.append("no evaluation yet; v plays one now", style="dim")
        console = any(event.mean_x_pos for event in evaluations)
        text.append(f"{'at step':>8} {'games':>5} {'cleared' if console else 'score':>8} {'return':>8}", style="bold")
        room = max(1, self.body[1] - text.plain.count("\n") - 1)
        for event in evaluations[::-1][:room]:
            done = f"{event.clears / max(1, event.episodes):.0%}" if console else number(event.mean_score)
            text.append(f"\n{short(event.env_steps):>8} {event.episodes:>5} {done:>8} {number(event.mean_return):>8}")
            if event.best:
                text.append(" ★ best", style="yellow")
        return text

    def note(self) -> str:
        count = sum(isinstance(event, Evaluation) for event in self._snapshot.others)
        return f"{count} evaluations" if count > 1 else ""

    def _stage(self, text: Text, snapshot: Snapshot, stage: str, width: int) -> None:
        recent = [event for event in snapshot.episodes if isinstance(event, Episode)][-_RECENT:]
        flags = sum(event.flag for event in recent)
        clears = sum(lane.clears for lane in snapshot.lanes.lanes) if snapshot.lanes is not None else 0
        name = {"game": "whole game", "random": "random stages"}.get(stage, stage)
        room = max(4, min(16, width - len(name) - 26))
        text.append(f"{name} ", style="bold")
        text.append(bar(flags / max(1, len(recent)), room), style="green")
        text.append(f" {flags} of last {len(recent)} cleared\n")
        first = next((event for event in snapshot.others if isinstance(event, Episode) and event.flag), None)
        if first is not None:
            lane = f"{first.actor}.{first.lane}"
            text.append(
                f"first clear at step {first.env_steps:,}, lane {lane}" + (f"; {clears:,} in all\n" if clears else "\n")
            )
        else:
            furthest = max((lane.best_x for lane in snapshot.lanes.lanes), default=0) if snapshot.lanes else 0
            text.append(f"not cleared yet; furthest x {furthest:,}\n" if furthest else "not cleared yet\n")
        if stage in ("game", "random"):
            text.append("episodes do not tell their stage: all stages together\n", style="dim")
