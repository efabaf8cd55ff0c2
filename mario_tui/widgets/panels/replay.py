"""Replay size and the schedules of beta and epsilon; when maximised, histograms of priorities and ages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from engine.config.runners import RUNNERS
from engine.protocol.messages import Progress, ReplayContents
from mario_tui.data.format import counted, fraction, measured, number, short
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.base.panel import Panel, bar
from mario_tui.widgets.charts.axes import log_ticks, round_ticks, tick_labels

_LABEL = 6
"""Cells of the labels on the left, with the space behind them."""
_TICK = 8
_TICK_EVERY = 14  # cells


def histogram(
    shares: Sequence[float], low: float, high: float, width: int, rows: int, style: str, *, logarithmic: bool = False
) -> Text:
    """Bars of equal bins from `low` to `high`, above a line of ticks: `rows` + 1 lines of at most `width` cells.

    `shares` may contain any value. The label on the left is the share of the highest bar.
    """
    cells = max(1, (width - _LABEL) // max(1, len(shares)))
    most = max((share for share in shares if math.isfinite(share)), default=0.0)
    heights = [round(fraction(share, most) * rows * 8) or int(share > 0) for share in shares]
    text = Text(no_wrap=True, overflow="ellipsis")
    for row in range(rows):
        label = f"{100 * most:.0f}%" if row == 0 else ""
        text.append(f"{label:>{_LABEL - 1}} ", style="dim")
        below = (rows - 1 - row) * 8
        bars = "".join(" ▁▂▃▄▅▆▇█"[min(max(height - below, 0), 8)] * cells for height in heights)
        text.append(f"{bars.rstrip()}\n", style=style)
    return text.append(" " * _LABEL + _ticks(low, high, cells * len(shares), logarithmic), style="dim")


def _ticks(low: float, high: float, columns: int, logarithmic: bool) -> str:
    """A line of `columns` cells with round numbers below their places."""
    if not (math.isfinite(high - low) and low < high and (low > 0 or not logarithmic)):
        return ""
    most = max(2, columns // _TICK_EVERY)
    values = log_ticks(low, high, most) if logarithmic else round_ticks(low, high, most)
    labels = [f"{value:g}".replace("e-0", "e-") for value in values] if logarithmic else tick_labels(values, _TICK)
    place = math.log if logarithmic else float
    line, end = "", -1
    for value, label in zip(values, labels, strict=True):
        share = (place(value) - place(low)) / (place(high) - place(low))
        start = min(max(0, int(share * columns) - len(label) // 2), columns - len(label))
        if start > end:  # a label that would touch its neighbour is left out
            line = line.ljust(start) + label
            end = len(line)
    return line


_LEAST_ROWS, _MOST_ROWS = 2, 12
"""Rows of a histogram's bars; with less room there are no histograms."""


class ReplayPanel(Panel):
    """Fill, beta annealing, mean epsilon, updates. A loop outside the program may leave out any of them.

    When maximised, it shows how the priorities are distributed, and how old the drawn transitions are.
    """

    def __init__(self) -> None:
        super().__init__("Replay and schedules", id="replay", key="2")

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
        text.append("beta    ").append(_level(p, "beta", room, "magenta")).append("\n")
    random = f" {p.random_share:.1%} random" if width >= 40 and math.isfinite(p.epsilon) else ""
    if not math.isnan(p.epsilon):
        text.append("epsilon ").append(_level(p, "epsilon", room, "yellow")).append(f"{random}\n")
    if p.burnin_left and snapshot.live:
        text.append(f"burn-in: learning starts in {counted(p.burnin_left, 'step')}", style="dim")
    else:
        rate = f", {p.updates_per_s:.1f}/s" if snapshot.running else ""
        learning_rate = "" if math.isnan(p.learning_rate) else f", lr {measured(p, 'learning_rate', '{:.1e}'.format)}"
        text.append(f"{counted(p.updates, 'update')}{rate}{learning_rate}", style="dim")
    return text


def _level(p: Progress, name: str, room: int, colour: str) -> Text:
    """A number between 0 and 1 with its bar."""
    if name in p.not_finite:
        return Text(measured(p, name))
    value = getattr(p, name)
    return Text.assemble((bar(value, room), colour), f" {value:.3f}")


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
