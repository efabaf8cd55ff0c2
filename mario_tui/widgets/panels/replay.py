"""Replay size and the schedules of beta and epsilon; when maximised, how priorities and ages are distributed."""

from __future__ import annotations

import math

from rich.text import Text

from engine.config.runners import RUNNERS
from engine.protocol.messages import Progress, ReplayContents
from mario_tui.data.feed import Snapshot
from mario_tui.data.format import counted, fraction, number, short
from mario_tui.widgets.base.panel import Panel, bar
from mario_tui.widgets.charts.histogram import histogram

_LEAST_ROWS, _MOST_ROWS = 2, 12
"""Rows of a histogram's bars; with less room there are no histograms."""


class ReplayPanel(Panel):
    """Fill, beta annealing, mean epsilon, updates. A loop outside the program may leave out any of them.

    When maximised, it shows how the priorities are distributed, and how old the drawn transitions are.
    """

    def __init__(self) -> None:
        super().__init__("Replay and schedules", id="replay", number=2)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        p, large = snapshot.progress, self.has_class("-alone")
        if p is None:
            return Text("no replay yet" if large else "nothing stored yet", style="dim")
        text = _schedules(snapshot, p, width)
        if large:
            text.append("\n\n")
            _contents(text, p.replay, width, self.body[1] - text.plain.count("\n"))
        return text

    def note(self) -> str:
        hello = self._snapshot.hello
        runner = None if hello is None else RUNNERS.get(hello.runner)
        if runner is None or runner.count is None or runner.learner or not self.has_class("-alone"):
            return ""
        return f"of {runner.coordinator}"


def _schedules(snapshot: Snapshot, p: Progress, width: int) -> Text:
    room = max(4, min(24, width - 24))
    text = Text(no_wrap=True, overflow="ellipsis")
    if p.replay_capacity:
        text.append("fill    ").append(bar(fraction(p.replay_size, p.replay_capacity), room), style="cyan")
        text.append(f" {short(p.replay_size)}/{short(p.replay_capacity)}\n")
    if p.replay is not None and p.replay.priorities is None:
        text.append("beta    ").append("– (uniform replay)\n", style="dim")
    elif not math.isnan(p.beta):
        text.append("beta    ").append(bar(p.beta, room), style="magenta").append(f" {p.beta:.3f}\n")
    random = f" {p.random_share:.1%} random" if width >= 40 else ""
    if not math.isnan(p.epsilon):
        text.append("epsilon ").append(bar(p.epsilon, room), style="yellow").append(f" {p.epsilon:.3f}{random}\n")
    if p.burnin_left and snapshot.live:
        text.append(f"burn-in: learning starts in {counted(p.burnin_left, 'step')}", style="dim")
    else:
        rate = f", {p.updates_per_s:.1f}/s" if snapshot.running else ""
        learning_rate = "" if math.isnan(p.learning_rate) else f", lr {p.learning_rate:.1e}"
        text.append(f"{counted(p.updates, 'update')}{rate}{learning_rate}", style="dim")
    return text


def _contents(text: Text, replay: ReplayContents | None, width: int, room: int) -> None:
    """Append the distributions of priorities and ages, in `room` lines."""
    if replay is None:
        text.append("no replay yet", style="dim")
        return
    priorities = replay.priorities
    is_spread = priorities is not None and priorities.low < priorities.high
    # Each histogram has a heading and a line of ticks; an empty line is between the two.
    rows = min(_MOST_ROWS, (room - 5) // 2 if is_spread else room - 4)
    if priorities is None:
        text.append("uniform replay: no priorities\n", style="dim")
    else:
        text.append("priorities |TD error|: ", style="bold")
        extent = f"{number(priorities.low)} to {number(priorities.high)}, median {number(priorities.median)}"
        text.append(extent if is_spread else f"all {number(priorities.low)}")
        text.append(f"; zero: {fraction(replay.zero_share, 1):.0%}\n")
        if is_spread and rows >= _LEAST_ROWS:
            low, high = priorities.low, priorities.high
            text.append(histogram(priorities.shares, low, high, width, rows, "magenta", logarithmic=True))
            text.append("\n")
    ages = replay.ages
    text.append("\nages of draws: ", style="bold").append(f"median {short(ages.median)} of {short(ages.high)} steps; ")
    text.append(f"oldest tenth: {fraction(replay.oldest_share, 1):.0%} (uniform 10%)")
    if rows >= _LEAST_ROWS:
        text.append("\n").append(histogram(ages.shares, ages.low, ages.high, width, rows, "cyan"))
