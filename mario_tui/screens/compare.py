"""Live comparison of runs: their charts, the list of runs, and what differs between their configurations."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input, Static

from engine.runs.checkpoints import OnProgress
from engine.runs.registry import list_records
from engine.runs.run import Run
from engine.runtime.text import printable
from mario_tui.data.colours import colours_of
from mario_tui.data.differences import differences, natural, without_seed
from mario_tui.data.feed import LOOK_S
from mario_tui.data.format import counted
from mario_tui.data.keys import bindings
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.followed_run import EVALUATION, FollowedRun, connect, read_again
from mario_tui.screens.panel_grid import DIGITS, PanelGrid
from mario_tui.widgets.base.filter_input import FilterInput
from mario_tui.widgets.base.key_footer import KeyFooter
from mario_tui.widgets.charts.comparison import Comparison, Series, reach_of
from mario_tui.widgets.charts.seeds import mean_over
from mario_tui.widgets.charts.view import x_text
from mario_tui.widgets.panels.compared_runs import ComparedRun, ComparedRunsPanel, Key, ranked, rankings
from mario_tui.widgets.panels.differences import DifferencesPanel

_TICK_S = 0.5
_SHARE = 20
"""Preparing what has changed takes at most 1 / `_SHARE` of the time, however many runs there are; drawing takes a few
times as long."""
_MOST_OTHERS = 12
_RETURN = "mean_return"
_METRICS = {
    _RETURN: ("Mean return", "Return"),
    EVALUATION: ("Evaluated return", "Evaluated"),
    "loss": ("TD loss", "Loss"),
    "q_mean": ("Q estimate", "Q"),
    "env_steps_per_s": ("Environment steps/s", "Steps/s"),
}
"""Titles of their charts: whole, and where there is no room for that."""


@dataclass(frozen=True)
class _Entry:
    """What has one line in the charts: a run, or the runs of one configuration that are not hidden."""

    key: Key
    name: str
    runs: Sequence[FollowedRun]


class CompareScreen(PanelGrid):
    """Follows active runs, and shows the recordings of the others."""

    PLACE = "compare"
    BINDINGS = [*DIGITS, *bindings("compare")]
    CSS_PATH = "compare.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (130, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]

    def __init__(
        self,
        runs: Sequence[FollowedRun],
        *,
        hidden: Sequence[Run] = (),
        sweep: Callable[[], Sequence[Run]] | None = None,
    ) -> None:
        """`hidden`: those of the runs that are not shown at first. `sweep`: returns the runs of a sweep that have begun
        so far; means over seeds are shown at first."""
        super().__init__()
        self._followed = list(runs)
        self._sweep = sweep
        self._colours: dict[Key, int] = {}
        """By configuration: the colour of its first run, whichever of its runs are shown."""
        for followed in self._followed:
            self._colours.setdefault(followed.configuration, followed.colour)
        self._averaged = sweep is not None
        self._ranking: str | None = None
        """What the runs are ranked by; None for the best evaluation, without any the mean return."""
        self._hidden: set[Key] = {str(run.path) for run in hidden}
        self._pinned: set[Key] = set()
        self._news = False
        """Whether something has changed that is not shown yet."""
        self._due = 0.0
        """When it may be shown."""
        self._rows: Sequence[ComparedRun] = ()
        self._compared: tuple[Sequence[Key], Mapping[str, Sequence[str]]] = ((), {})
        """What was shown last, and the options that differ in it."""

    def compose(self) -> ComposeResult:
        self._runs, self._differences = ComparedRunsPanel(), DifferencesPanel()
        self._charts = {
            metric: Comparison(title, self.view, id=f"compare-{metric}", number=number, short=short)
            for number, (metric, (title, short)) in enumerate(_METRICS.items(), 3)
        }
        self.panels = (self._runs, self._differences, *self._charts.values())
        yield Static(id="title")
        with Container(id="comparison"):
            with Container(id="grid"):
                yield from self._charts.values()
            with Container(id="about"):
                yield self._runs
                yield self._differences
        self.filter = FilterInput("filter words, such as ddp n-step=3; enter: keep, esc: clear", back=self._runs)
        yield self.filter
        yield KeyFooter()

    def on_mount(self) -> None:
        self.restore()
        self.set_focus(self._runs)
        self.set_interval(_TICK_S, self._tick)
        self.run_worker(connect(self._followed), name="connect")
        self.run_worker(self._look(), name="records")
        self._show()

    def on_unmount(self) -> None:
        for followed in self._followed:
            followed.feed.close()

    def _tick(self) -> None:
        changed = [followed.refresh() for followed in self._followed]
        self._news = self._news or any(changed)
        began = time.monotonic()
        if self._news and began >= self._due:
            self._news = False
            self._show()
            self._due = time.monotonic() + _SHARE * (time.monotonic() - began)

    async def _look(self) -> None:
        """Look for what has become of runs without a host, and for runs of the sweep that have begun."""
        while True:
            await read_again(self._followed)
            for followed in await asyncio.to_thread(self._begun):
                self._followed.append(followed)
                self._colours.setdefault(followed.configuration, followed.colour)
                followed.feed.connect()
                self._news = True
            await asyncio.sleep(LOOK_S)

    def _begun(self) -> list[FollowedRun]:
        """Runs of the sweep that are not followed yet."""
        known = {each.run.path for each in self._followed}
        begun = [run for run in (self._sweep() if self._sweep else ()) if run.path not in known]
        return _followed(begun, not self.mario.read_only, lambda done: None) if begun else []

    # ------------------------------------------------------------------------------------------ what is shown

    def reach(self) -> tuple[float, float]:
        series = [each for chart in self._charts.values() for each in chart.series]
        return reach_of(series, self.view.axis)

    def draw_charts(self) -> None:
        super().draw_charts()
        self._show_values()

    def _ranked_by(self, rows: Sequence[ComparedRun]) -> str:
        return self._ranking or rankings(rows)[0]

    def _entries(self) -> list[_Entry]:
        """What matches the filter, in the order of the names."""
        groups: dict[Key, list[FollowedRun]] = {}
        for each in self._followed:
            if self._matches(each) and not (self._averaged and str(each.run.path) in self._hidden):
                groups.setdefault(self._key(each), []).append(each)
        names = _names_of(list(groups.values())) if self._averaged else [runs[0].run.name for runs in groups.values()]
        return [_Entry(key, name, runs) for (key, runs), name in zip(groups.items(), names, strict=True)]

    def _key(self, followed: FollowedRun) -> Key:
        return followed.configuration if self._averaged else str(followed.run.path)

    def _matches(self, followed: FollowedRun) -> bool:
        return self._key(followed) in self._pinned or followed.matches(self.filter.words)

    def _series(self, entry: _Entry, metric: str) -> Series:
        pinned = entry.key in self._pinned
        series = [each.series(metric) for each in entry.runs]
        if self._averaged:
            return mean_over(series, entry.name, self._colours[entry.key], pinned=pinned)
        (one,) = series
        return replace(one, pinned=pinned)

    def _show(self) -> None:
        """Update everything that depends on the runs' data, the filter, and what is hidden or pinned."""
        found = {entry.key: entry for entry in self._entries()}
        rows = [
            ComparedRun(
                entry.key,
                entry.name,
                self._series(entry, _RETURN),
                _mean([each.evaluated for each in entry.runs]),
                list(dict.fromkeys(each.seen.status for each in entry.runs)),
                hidden=entry.key in self._hidden,
                problem=next((each.seen.problem for each in entry.runs if each.seen.problem), ""),
            )
            for entry in found.values()
        ]
        self._rows = ranked(rows, self._ranked_by(rows))
        entries = [found[row.key] for row in self._rows]
        if [row.key for row in self._rows] != self._runs.keys():
            self._runs.refresh(layout=True)
        shown = [entry for entry in entries if entry.key not in self._hidden]
        returns = [row.series for row in self._rows if not row.hidden]
        series = {
            metric: [self._series(entry, metric) for entry in shown] for metric in self._charts if metric != _RETURN
        }
        series[_RETURN] = returns
        self.view.reach = reach_of([each for of_chart in series.values() for each in of_chart], self.view.axis)
        self.draw_in_turns([chart for metric, chart in self._charts.items() if chart.take(series[metric])])
        self._differences.show(returns, self._differing(tuple(entry.key for entry in shown), shown))
        self._show_title(len(shown))
        self._show_values()

    def _differing(self, keys: Sequence[Key], shown: Sequence[_Entry]) -> Mapping[str, Sequence[str]]:
        """The options that differ between what is shown. They don't change, so they are compared once."""
        if keys != self._compared[0]:
            options = [entry.runs[0].options for entry in shown]
            self._compared = keys, differences([*map(without_seed, options)] if self._averaged else options)
        return self._compared[1]

    def _show_values(self) -> None:
        """The list of runs, with the mean return of each at the crosshair, or the newest."""
        cursor, axis = self.view.cursor, self.view.axis
        points = [row.series.at(math.inf if cursor is None else cursor, axis) for row in self._rows]
        head = "last" if cursor is None else x_text(cursor, axis).removesuffix(" steps")
        nothing = "all runs are hidden" if any(map(self._matches, self._followed)) else "no run matches the filter"
        values = [None if point is None else point[1] for point in points]
        self._runs.show(self._rows, self._ranked_by(self._rows), head, values, nothing)

    def _show_title(self, shown: int) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("Compare", style="bold").append(f"  {counted(len(self._followed), 'run')}")
        if self._averaged:
            text.append(f", means over seeds of {counted(shown, 'configuration')}, with 95 % intervals")
        elif shown < len(self._followed):
            text.append(f", {shown} shown")
        if words := self.filter.words:
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
        self._hidden = self._hidden - keys if self._hidden & keys else self._hidden | (keys - self._pinned)
        self._show()

    def action_pin(self) -> None:
        if (selected := self._runs.selected) is not None:
            self._pinned ^= {selected.key}
            self._runs.action_move(0)  # the cursor follows the run
            self._show()

    def action_sort(self) -> None:
        """Rank the runs by the next of their numbers."""
        names = rankings(self._rows)
        self._ranking = names[(names.index(self._ranked_by(self._rows)) + 1) % len(names)]
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
        self.filter.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show()


def compare(screen: PlaceScreen[Any], runs: Sequence[Run], *, sweep: Callable[[], Sequence[Run]] | None = None) -> None:
    """Compare runs; see `CompareScreen`."""
    save = not screen.mario.read_only
    screen.run_job(
        f"Reading {counted(len(runs), 'run')}",
        lambda progress: _followed(runs, save, progress),
        lambda followed: screen.app.push_screen(CompareScreen(followed, sweep=sweep)),
    )


def compare_with_others(screen: PlaceScreen[Any], run: Run) -> None:
    """Show the charts of one run; the newest other runs of its game are in the list, hidden. Errors are shown."""
    save = not screen.mario.read_only

    def work(progress: OnProgress) -> CompareScreen:
        others = _others_of_its_game(run)
        return CompareScreen(_followed([run, *others], save, progress), hidden=others)

    screen.run_job("Reading the runs", work, screen.app.push_screen)


def _followed(runs: Sequence[Run], save: bool, progress: OnProgress) -> list[FollowedRun]:
    """The runs in the order of their names. `save`: their colours, for the next time."""
    runs = sorted(runs, key=lambda run: natural(run.name))
    followed = []
    for run, colour in zip(runs, colours_of([str(run.path) for run in runs], save=save), strict=True):
        followed.append(FollowedRun(run, colour))
        progress(len(followed) / len(runs))
    return followed


def _others_of_its_game(run: Run) -> list[Run]:
    """Raises `UserError` if the run is gone."""
    game = run.record().game
    listed = list_records(run.path.parent)
    beside = ((other, record) for other, record in listed if other.path.parent == run.path.parent)  # not in a sweep
    found = (other for other, record in beside if record.game == game and other.path != run.path)
    return list(islice(found, _MOST_OTHERS))


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _names_of(groups: Sequence[Sequence[FollowedRun]]) -> list[str]:
    """`3 × learning_rate=0.0001`: how many runs, and their options that other configurations do not have."""
    apart = differences([without_seed(runs[0].options) for runs in groups])
    names = []
    for at, runs in enumerate(groups):
        options = " ".join(f"{name}={values[at]}" for name, values in apart.items()) if runs[0].options else ""
        names.append(printable(f"{len(runs)} × {options or runs[0].run.name}"))
    return names
