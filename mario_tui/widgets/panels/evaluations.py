"""Performance of the policy: clear rates of tasks during training, first clears, and greedy evaluations; and the state
of the curriculum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from engine.protocol.messages import Episode, Evaluation, FinalEvaluation, Part, Ready, TaskRecord
from engine.protocol.outcome import Outcome
from engine.protocol.results import FinalResult
from mario_tui.data.format import (
    counted,
    distinct,
    is_cleared,
    judged_label,
    judged_number,
    judged_value,
    number,
    reached,
    result_text,
    short,
)
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.base.panel import Panel, bar
from mario_tui.widgets.charts.axes import round_ticks, tick_labels
from mario_tui.widgets.charts.chart import best_of
from mario_tui.widgets.charts.curve import Canvas

_RECENT = 100
_ROWS_WITH_CHART = 22
_LABEL = 9


class EvaluationsPanel(Panel):
    """Clear rates of the tasks, where games are to be cleared, then the evaluations, newest first."""

    def __init__(self, evaluate_key: str = "") -> None:
        """`evaluate_key`: the key that starts an evaluation; empty if none can be started."""
        super().__init__("Evaluations", id="evaluations", key="7")
        self._evaluate_key = evaluate_key

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        hello = snapshot.hello
        outcome = snapshot.outcome
        self.title = self.short_title = "Stages and evaluations" if is_cleared(outcome) else "Evaluations"
        if hello is not None and is_cleared(outcome):
            if outcome.tasks and hello.task not in outcome.tasks:
                self._several(text, snapshot, hello.task, width)
            else:
                self._one(text, snapshot, hello.task, width)
        newest = next((each for each in reversed(snapshot.others) if isinstance(each, FinalEvaluation | Ready)), None)
        if isinstance(newest, FinalEvaluation):  # and the run was not resumed
            text.append(f"result: {result_text(outcome, FinalResult.of(newest, outcome))}\n", style="bold green")
        evaluations = [event for event in snapshot.others if isinstance(event, Evaluation)]
        if not evaluations:
            can_be_run = snapshot.live and hello is not None and hello.obeys is None
            hint = f"; press {self._evaluate_key} to run one" if self._evaluate_key and can_be_run else ""
            return text.append(f"no evaluation yet{hint}", style="dim")
        best = best_of(evaluations)
        if self.has_class("-alone") and self.body[1] >= _ROWS_WITH_CHART:
            _chart(text, evaluations, outcome, width, self.body[1] // 2)
        text.append(f"{'at step':>8} {'games':>5} {judged_label(outcome):>8} {'return':>8}", style="bold")
        room = max(1, self.body[1] - text.plain.count("\n") - 1)
        shown = evaluations[::-1][:room]
        for event, step in zip(shown, distinct([event.env_steps for event in shown]), strict=True):
            value = _judged(event, outcome)
            done = judged_number(outcome)(value)
            text.append(f"\n{step:>8} {event.episodes:>5} {done:>8} {number(event.mean_return):>8}")
            if event is best:
                text.append(" ★ best", style="yellow")
            if event.solved:
                text.append(" ✓ solved", style="green")
        return text

    def note(self) -> str:
        count = sum(isinstance(event, Evaluation) for event in self._snapshot.others)
        return counted(count, "evaluation") if count > 1 else ""

    def _one(self, text: Text, snapshot: Snapshot, stage: str, width: int) -> None:
        recent = [event for event in snapshot.events if isinstance(event, Episode)][-_RECENT:]
        flags = sum(event.success for event in recent)
        clears = sum(lane.clears for lane in snapshot.lanes.lanes) if snapshot.lanes is not None else 0
        room = max(4, min(16, width - len(stage) - 26))
        text.append(f"{stage} " if stage else "", style="bold")
        text.append(bar(flags / max(1, len(recent)), room), style="green")
        text.append(f" {flags} of last {len(recent)} cleared\n")
        first = next((event for event in snapshot.others if isinstance(event, Episode) and event.success), None)
        if first is not None:
            lane = f"{first.actor}.{first.lane}"
            text.append(
                f"first clear at step {first.env_steps:,}, lane {lane}"
                + (f"; {clears:,} in total\n" if clears else "\n")
            )
        else:
            lanes = snapshot.lanes.lanes if snapshot.lanes is not None else []
            best = reached(snapshot.outcome, max((lane.best_results for lane in lanes), default=()))
            text.append(f"not cleared yet; best {best}\n" if best else "not cleared yet\n")

    def _several(self, text: Text, snapshot: Snapshot, mode: str, width: int) -> None:
        """One line per task played; those with the highest clear rates if there is no room for all."""
        records = snapshot.lanes.tasks if snapshot.lanes is not None else []
        cleared = sum(record.clears > 0 for record in records)
        played = f"{cleared} of {counted(len(records), snapshot.outcome.task)} cleared\n"
        text.append(f"{mode}: ", style="bold").append(played)
        evaluations = sum(isinstance(event, Evaluation) for event in snapshot.others)
        room = max(2, self.body[1] - 2 - min(evaluations + 1, self.body[1] // 2))
        shown = records if len(records) <= room else sorted(records, key=_rank)[: room - 1]
        for record in shown:
            text.append(f"{record.task} ", style="bold")
            text.append(bar(_share(record), max(4, min(16, width - 35))), style="green")
            text.append(f" {record.recent_clears:>3} of last {record.recent:<3} ")
            first = record.first_clear
            text.append("not cleared\n" if first is None else f"first at {short(first)}\n")
        if len(shown) < len(records):
            text.append(f"{len(records) - len(shown)} more\n", style="dim")


def _share(record: TaskRecord) -> float:
    return record.recent_clears / max(1, record.recent)


def _rank(record: TaskRecord) -> tuple[float, bool]:
    return -_share(record), record.first_clear is None


def _judged(event: Evaluation, outcome: Outcome) -> float:
    return judged_value(outcome, event.clears / max(1, event.episodes), event.mean_return, outcome.named(event.results))


def _chart(text: Text, evaluations: Sequence[Evaluation], outcome: Outcome, width: int, rows: int) -> None:
    """Append a chart of what evaluations are judged by, a clear rate in percent, over environment steps."""
    in_percent = is_cleared(outcome)
    done = [_judged(event, outcome) * (100 if in_percent else 1) for event in evaluations]
    finite = [value for value in done if math.isfinite(value)] or [0.0]
    low, high = (0.0, 100.0) if in_percent else (min(finite), max(finite))
    if low == high:
        low, high = low - 1, high + 1
    steps = [float(event.env_steps) for event in evaluations]
    canvas = Canvas(max(4, width - _LABEL), rows, (min(steps), max(max(steps), min(steps) + 1)), (low, high))
    canvas.line(steps, done, 0)
    best = best_of(evaluations)
    for event, x, y in zip(evaluations, steps, done, strict=True):
        canvas.glyph(x, y, "★" if event is best else "◆", 1)
    ticks = round_ticks(low, high, max(2, rows // 3))
    labels = {canvas.row(y): label for y, label in zip(ticks, tick_labels(ticks, _LABEL - 3), strict=True)}
    text.append("games cleared, %\n" if in_percent else f"mean {judged_label(outcome)}\n", style="bold")
    for row in range(rows):
        text.append(f"{labels.get(row, ''):>{_LABEL - 1}} ", style="dim")
        for piece, ink in canvas.runs(row):
            text.append(piece, style=("green", "bold yellow")[ink])
        text.append("\n")
    left, right = short(steps[0]), f"{short(steps[-1])} steps"
    text.append(" " * _LABEL + left + right.rjust(max(0, canvas.columns - len(left))) + "\n\n", style="dim")


_MOST = 6


class CurriculumPanel(Panel):
    """One line per stage or reward term in use, the newest if there are many. Hidden in runs without a curriculum."""

    def __init__(self) -> None:
        super().__init__("Curriculum", id="curriculum", key="u")

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
