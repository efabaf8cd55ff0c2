"""Live comparison of runs: their charts, the list of runs, and what differs between their configurations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Footer, Input, Static

from engine.errors import UserError
from engine.runs.registry import list_runs
from engine.runs.run import Run
from engine.runtime.text import printable
from mario_tui.data.colours import colours_of
from mario_tui.data.differences import Configuration, Options, described, differences, natural, same_but_seed
from mario_tui.data.feed import Feed, Snapshot
from mario_tui.data.format import counted
from mario_tui.data.keys import bindings
from mario_tui.data.standing import Standing, standing
from mario_tui.screens.panel_grid import DIGITS, PanelGrid
from mario_tui.widgets.base.filter_input import FilterInput
from mario_tui.widgets.charts.comparison import Comparison, Series, reach_of
from mario_tui.widgets.charts.run_curves import Curves
from mario_tui.widgets.charts.seeds import mean_over
from mario_tui.widgets.charts.view import x_text
from mario_tui.widgets.panels.compared_runs import ComparedRun, ComparedRunsPanel
from mario_tui.widgets.panels.differences import DifferencesPanel

_TICK_S = 0.5
_MOST_OTHERS = 12
_RETURN, _EVALUATION = "mean_return", "evaluation"
_METRICS = {
    _RETURN: "Mean return",
    _EVALUATION: "Evaluated return",
    "loss": "TD loss",
    "q_mean": "Q estimate",
    "env_steps_per_s": "Environment steps/s",
}


@dataclass
class _Followed:
    """A run, the source of its events, its options and last snapshot."""

    run: Run
    colour: int
    options: Options
    feed: Feed = field(default_factory=Feed)
    seen: Snapshot = field(default_factory=Snapshot)
    curves: Curves = field(default_factory=Curves)
    standing: Standing = "finished"

    def refresh(self) -> bool:
        """Take the newest snapshot; returns whether it changes the charts."""
        snapshot = self.feed.snapshot()
        changed = snapshot.points != self.seen.points or snapshot.others is not self.seen.others
        if changed:
            self.curves = Curves(snapshot.points, snapshot.others)
        changed |= snapshot.problem != self.seen.problem or snapshot.end is not self.seen.end
        self.seen = snapshot
        if changed:
            with contextlib.suppress(UserError):
                self.standing = standing(self.run.record())
        return changed

    def series(self, metric: str) -> Series:
        curves = self.curves
        if metric == _EVALUATION:
            at = [float(event.env_steps) for event in curves.evaluations]
            seconds = [curves.x_of(step, "time") for step in at]
            return Series(self.run.name, self.colour, at, seconds, [event.mean_return for event in curves.evaluations])
        return Series(self.run.name, self.colour, curves.xs("steps"), curves.xs("time"), curves.values(metric))


@dataclass(frozen=True)
class _Entry:
    """What has one line in the charts: a run, or all runs of one configuration. `key` identifies it."""

    key: str
    name: str
    runs: Sequence[_Followed]


class CompareScreen(PanelGrid):
    """Follows active runs, and shows the recordings of the others."""

    PLACE = "compare"
    BINDINGS = [*DIGITS, *bindings("compare")]
    CSS_PATH = "compare.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (130, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]

    def __init__(self, runs: Sequence[Run], *, hidden: Sequence[Run] = (), read_only: bool = False) -> None:
        """`hidden`: those of the runs that are not shown at first."""
        super().__init__()
        runs = sorted(runs, key=lambda run: natural(run.name))
        colours = colours_of([str(run.path) for run in runs], save=not read_only)
        self._followed = [_Followed(run, colour, _options(run)) for run, colour in zip(runs, colours, strict=True)]
        self._averaged = False
        self._hidden = {str(run.path) for run in hidden}
        self._pinned: set[str] = set()

    def compose(self) -> ComposeResult:
        self._runs, self._differences = ComparedRunsPanel(), DifferencesPanel()
        self._charts = {
            metric: Comparison(title, self.view, id=f"compare-{metric}", number=number)
            for number, (metric, title) in enumerate(_METRICS.items(), 3)
        }
        self.panels = (self._runs, self._differences, *self._charts.values())
        yield Static(id="title")
        with Container(id="comparison"):
            with Container(id="grid"):
                yield from self._charts.values()
            with Container(id="about"):
                yield self._runs
                yield self._differences
        self._filter = FilterInput("filter words, such as ddp seed=1; enter: keep, esc: clear", back=self._runs)
        yield self._filter
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        for followed in self._followed:
            followed.feed.connect(followed.run)
        self.restore()
        self.set_focus(self._runs)
        self.set_interval(_TICK_S, self._tick)
        self._show()

    def on_unmount(self) -> None:
        for followed in self._followed:
            followed.feed.close()

    def _tick(self) -> None:
        changed = [followed.refresh() for followed in self._followed]
        if any(changed):
            self._show()

    # ------------------------------------------------------------------------------------------ what is shown

    def reach(self) -> tuple[float, float]:
        series = [each for chart in self._charts.values() for each in chart.series]
        return reach_of(series, self.view.axis)

    def draw_charts(self) -> None:
        super().draw_charts()
        self._show_values()

    def _entries(self) -> list[_Entry]:
        """The runs that match the filter, pinned ones first."""
        matching = [followed for followed in self._followed if self._matches(followed)]
        if not self._averaged:
            entries = [_Entry(str(each.run.path), each.run.name, [each]) for each in matching]
        else:
            groups: dict[Configuration, list[_Followed]] = {}
            for each in matching:
                groups.setdefault(same_but_seed(each.options), []).append(each)
            names = list(differences([dict(key) for key in groups]))
            entries = [
                _Entry(f"mean of {runs[0].run.path}", _name_of_group(runs, names), runs) for runs in groups.values()
            ]
        return sorted(entries, key=lambda entry: entry.key not in self._pinned)

    def _matches(self, followed: _Followed) -> bool:
        text = f"{followed.run.name} {described(followed.options, list(followed.options))}".lower()
        return str(followed.run.path) in self._pinned or all(word in text for word in self._filter.words)

    def _series(self, entry: _Entry, metric: str) -> Series:
        pinned = entry.key in self._pinned
        series = [each.series(metric) for each in entry.runs]
        if self._averaged:
            return mean_over(series, entry.name, entry.runs[0].colour, pinned=pinned)
        (one,) = series
        return Series(one.name, one.index, one.steps, one.seconds, one.values, pinned=pinned)

    def _show(self) -> None:
        """Update everything that depends on the runs' data, the filter, and what is hidden or pinned."""
        entries = self._entries()
        shown = [entry for entry in entries if entry.key not in self._hidden]
        for metric, chart in self._charts.items():
            chart.show([self._series(entry, metric) for entry in shown])
        rows = [
            ComparedRun(
                entry.key,
                entry.name,
                self._series(entry, _RETURN),
                entry.runs[0].standing,
                hidden=entry.key in self._hidden,
                problem=entry.runs[0].seen.problem,
            )
            for entry in entries
        ]
        if [row.key for row in rows] != self._runs.keys():
            self._runs.refresh(layout=True)
        self._rows = rows
        first = [entry.runs[0] for entry in shown]
        options = differences([each.options for each in first])
        if self._averaged:
            options.pop("seed", None)
        self._differences.show([self._series(entry, _RETURN) for entry in shown], options)
        self._show_title(len(shown))
        self.draw_charts()

    def _show_values(self) -> None:
        """The mean return of each run, at the crosshair or the newest."""
        cursor, axis = self.view.cursor, self.view.axis
        points = [row.series.at(math.inf if cursor is None else cursor, axis) for row in self._rows]
        head = "last" if cursor is None else f"{x_text(cursor, axis).removesuffix(' steps')}"
        self._runs.show(self._rows, head, [None if point is None else point[1] for point in points])

    def _show_title(self, shown: int) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("Compare", style="bold").append(f"  {counted(len(self._followed), 'run')}")
        if self._averaged:
            text.append(f", means over seeds of {counted(shown, 'configuration')}, with 95 % intervals")
        elif shown < len(self._followed):
            text.append(f", {shown} shown")
        if words := self._filter.words:
            text.append(f", filter “{' '.join(words)}”")
        self.query_one("#title", Static).update(text)

    # ------------------------------------------------------------------------------------------ actions

    def action_show_hide(self) -> None:
        """Show or hide the selected run in the charts, and go to the next one."""
        if (selected := self._runs.selected) is not None:
            self._hidden ^= {selected.key}
            self._show()
            self._runs.action_move(1)

    def action_show_hide_all(self) -> None:
        """Hide all runs but the pinned ones; if any is hidden, show all."""
        keys = {row.key for row in self._rows}
        self._hidden = set() if self._hidden & keys else keys - self._pinned
        self._show()

    def action_pin(self) -> None:
        if (selected := self._runs.selected) is not None:
            self._pinned ^= {selected.key}
            self._show()

    def action_average(self) -> None:
        """Switch between single runs and the means over seeds."""
        self._averaged = not self._averaged
        self._show()

    def action_open(self) -> None:
        """In the list of runs: open the dashboard of the selected one. Elsewhere: maximise the panel."""
        selected = self._runs.selected
        if self.active_panel() is not self._runs or selected is None:
            self.action_maximise()
            return
        run = next(entry.runs[0].run for entry in self._entries() if entry.key == selected.key)
        self.mario.open_dashboard(run)

    async def on_list_panel_opened(self) -> None:
        await self.run_action("open")

    def action_filter(self) -> None:
        self._filter.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show()

    def action_back(self) -> None:
        """Hide the crosshair, clear the filter, restore all panels, then go back."""
        if self.hide_cursor() or self._filter.close():
            return
        if self.maximised is not None:
            self.action_maximise()
        else:
            self.dismiss(None)

    def action_home(self) -> None:
        self.dismiss(None)

    def action_quit_app(self) -> None:
        self.app.exit()


def compared_with_others(run: Run, *, read_only: bool = False) -> CompareScreen:
    """The charts of one run; the newest other runs of its game are in the list, hidden."""
    game = run.record().game
    others = [other for other in list_runs(run.path.parent) if other.path != run.path]
    of_game = list(islice((other for other in others if other.record().game == game), _MOST_OTHERS))
    return CompareScreen([run, *of_game], hidden=of_game, read_only=read_only)


def _options(run: Run) -> Options:
    """A run's options; none if they can't be read."""
    try:
        return run.config().options()
    except UserError:
        return {}


def _name_of_group(runs: Sequence[_Followed], names: Sequence[str]) -> str:
    """`3 × learning_rate=0.0001`: how many runs, and what sets their configuration apart."""
    apart = described(runs[0].options, names) or runs[0].run.name
    return printable(f"{len(runs)} × {apart}")
