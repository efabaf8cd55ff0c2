"""Live comparison of several runs in one chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Footer, Static

from engine.protocol.messages import Point
from engine.runs.run import Run
from mario_tui.data.feed import Feed, Snapshot
from mario_tui.data.format import duration, number, steps
from mario_tui.data.keys import bindings
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.charts.comparison import Comparison, Series, finite

_TICK_S = 0.5
_METRICS = (
    ("mean_return", "Mean return"),
    ("loss", "TD loss"),
    ("q_mean", "Q estimate"),
    ("env_steps_per_s", "Environment steps/s"),
)


@dataclass
class _Followed:
    """A run, the source of its events, and its last snapshot."""

    run: Run
    feed: Feed
    seen: Snapshot


class CompareScreen(PlaceScreen[None]):
    """Follows active runs, and shows the recordings of the others."""

    PLACE = "compare"
    BINDINGS = bindings("compare")
    CSS_PATH = "compare.tcss"

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self._followed = [_Followed(run, Feed(), Snapshot()) for run in runs]
        self._metric = 0
        self._over_time = False

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Comparison(id="comparison")
        yield Static(id="legend", classes="plot")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        for followed in self._followed:
            followed.feed.connect(followed.run)
        self.set_interval(_TICK_S, self._tick)
        self._draw()

    def on_unmount(self) -> None:
        for followed in self._followed:
            followed.feed.close()

    def _tick(self) -> None:
        changed = False
        for followed in self._followed:
            snapshot = followed.feed.snapshot()
            changed |= snapshot.points != followed.seen.points or snapshot.problem != followed.seen.problem
            followed.seen = snapshot
        if changed:
            self._draw()

    def _draw(self) -> None:
        field, title = _METRICS[self._metric]
        over = "training time" if self._over_time else "environment steps"
        self.query_one("#title", Static).update(Text.assemble((title, "bold"), f" over {over}"))
        series = [
            Series(followed.run.name, index, finite(*self._values(followed.seen.points, field)))
            for index, followed in enumerate(self._followed)
        ]
        self.query_one(Comparison).show(series, duration if self._over_time else steps)
        self.query_one("#legend", Static).update(self._legend(series))

    def _values(self, points: Sequence[Point], field: str) -> tuple[list[float], list[float]]:
        xs = [point.wall_s if self._over_time else float(point.env_steps) for point in points]
        return xs, [getattr(point, field) for point in points]

    def _legend(self, series: Sequence[Series]) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        widest = max(len(each.name) for each in series)
        for each, followed in zip(series, self._followed, strict=True):
            text.append(f"{each.marker} {each.name:<{widest}}", style=f"bold {each.colour}")
            if each.points:
                x, last = each.points[-1]
                at = duration(x) if self._over_time else steps(x)
                best = max(y for _, y in each.points)
                text.append(f"  {number(last):>8} at {at}  highest {number(best)}")
            else:
                text.append(f"  {followed.seen.problem or 'no data yet'}", style="dim")
            text.append("\n")
        text.rstrip()
        return text

    def action_metric(self) -> None:
        self._metric = (self._metric + 1) % len(_METRICS)
        self._draw()

    def action_axis(self) -> None:
        self._over_time = not self._over_time
        self._draw()

    def action_back(self) -> None:
        self.dismiss(None)
