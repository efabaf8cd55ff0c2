"""Live comparison of runs: their charts, the list of runs, and what differs between their configurations."""

from __future__ import annotations

import asyncio
import contextlib
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

from engine.protocol.metrics import COMPARED
from engine.runs.checkpoints import OnProgress
from engine.runs.registry import list_records
from engine.runs.run import Run
from engine.runtime.text import printable
from mario_tui.data.differences import colours_of, differences, natural, without_seed
from mario_tui.data.feed import LOOK_S, Allowance
from mario_tui.data.format import counted
from mario_tui.data.keys import bindings
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.live_run import EVALUATION, OWN, LiveRun, connect, read_again
from mario_tui.screens.panel_grid import PanelGrid, panel_keys
from mario_tui.widgets.base.footer import FilterInput, KeyFooter
from mario_tui.widgets.charts.axes import x_text
from mario_tui.widgets.charts.comparison import Comparison, Means, Series, reach_of
from mario_tui.widgets.panels.compared_runs import (
    ComparedRun,
    ComparedRunsPanel,
    DifferencesPanel,
    Key,
    ranked,
    rankings,
)

_TICK_S = 0.5
_SHARE = 20
"""Preparing what has changed takes at most 1 / `_SHARE` of the time, however many runs there are; drawing takes a few
times as long."""
_FEW = 100
"""Lines that are made in some hundredths of a second."""
_MOST_OTHERS = 12
_RETURN = "mean_return"
_FIRST, *_OTHERS = ((metric.name, metric.title, metric.short) for metric in COMPARED)
_CHARTS = (_FIRST, (EVALUATION, "Evaluated return", "Evaluated"), *_OTHERS)
"""What they show, and their titles: whole, and where there is no room for that."""
_ON_SHORT = 4
"""Charts that have room on a short screen."""
_LEAST_ROWS = 6
"""Height of a chart where there are so many that they are scrolled."""


@dataclass(frozen=True)
class _Entry:
    """What has one line in the charts: a run, or the runs of one configuration that are not hidden."""

    key: Key
    name: str
    runs: Sequence[LiveRun]


@dataclass(frozen=True)
class _Chosen:
    """How the user compares runs. Keys put another one in its place, also while a thread makes the lines."""

    averaged: bool
    hidden: frozenset[Key]
    pinned: frozenset[Key] = frozenset()
    words: Sequence[str] = ()
    """Of the filter."""
    ranking: str | None = None
    """What the runs are ranked by; None for the best evaluation, without any the mean return."""

    def key(self, live: LiveRun) -> Key:
        return live.configuration if self.averaged else str(live.run.path)

    def matches(self, live: LiveRun) -> bool:
        return self.key(live) in self.pinned or live.matches(self.words)

    def entries(self, live: Sequence[LiveRun]) -> list[_Entry]:
        """Return what matches the filter, in the order of the names."""
        groups: dict[Key, list[LiveRun]] = {}
        for each in live:
            if self.matches(each) and not (self.averaged and str(each.run.path) in self.hidden):
                groups.setdefault(self.key(each), []).append(each)
        names = _names_of(list(groups.values())) if self.averaged else [runs[0].run.name for runs in groups.values()]
        return [_Entry(key, name, runs) for (key, runs), name in zip(groups.items(), names, strict=True)]

    def ranked_by(self, rows: Sequence[ComparedRun]) -> str:
        return self.ranking or rankings(rows)[0]


@dataclass(frozen=True)
class _Made:
    """What is shown: the list of runs, the lines of each metric, and the options that differ."""

    rows: Sequence[ComparedRun]
    series: Mapping[str, Sequence[Series]]
    differing: Mapping[str, Sequence[str]]


class CompareScreen(PanelGrid):
    """Follows active runs, and shows the recordings of the others."""

    PLACE = "compare"
    BINDINGS = [*panel_keys("123456789"), *bindings("compare")]
    CSS_PATH = "compare.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (130, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]

    def __init__(
        self,
        runs: Sequence[LiveRun],
        allowance: Allowance,
        *,
        hidden: Sequence[Run] = (),
        sweep: Callable[[], Sequence[Run]] | None = None,
    ) -> None:
        """`hidden`: those of the runs that are not shown at first. `sweep`: returns the runs of a sweep that have begun
        so far; means over seeds are shown at first."""
        super().__init__()
        self._live_runs = list(runs)
        self._sweep, self._allowance = sweep, allowance
        self._colours: dict[Key, int] = {}
        """By configuration: the colour of its first run, whichever of its runs are shown."""
        for live in self._live_runs:
            self._colours.setdefault(live.configuration, live.colour)
        self._chosen = _Chosen(averaged=sweep is not None, hidden=frozenset(str(run.path) for run in hidden))
        self._means = Means()
        self._changed = asyncio.Event()
        """Set when something is to be shown that takes longer to prepare."""
        self._news = False
        """Whether the runs have changed since they were shown."""
        self._rows: Sequence[ComparedRun] = ()
        self._compared: tuple[Sequence[Key], Mapping[str, Sequence[str]]] = ((), {})
        """What was shown last, and the options that differ in it."""

    def compose(self) -> ComposeResult:
        self._runs, self._differences = ComparedRunsPanel(), DifferencesPanel()
        self._charts = {
            metric: Comparison(title, self.view, id=f"compare-{metric}", key=str(number), short=short)
            for number, (metric, title, short) in enumerate(_CHARTS, 3)
        }
        for chart in list(self._charts.values())[_ON_SHORT:]:
            chart.add_class("-more")
        self.panels = (self._runs, self._differences, *self._charts.values())
        self._heading, self._grid = Static(id="title"), Container(*self._charts.values(), id="grid")
        yield self._heading
        yield Container(self._grid, Container(self._runs, self._differences, id="about"), id="comparison")
        self.filter = FilterInput("filter words, such as ddp n-step=3; enter: keep, esc: clear", back=self._runs)
        yield self.filter
        yield KeyFooter()

    def on_mount(self) -> None:
        self.restore()
        self.set_focus(self._runs)
        self.run_worker(self._follow_series(), name="series")
        self.run_worker(connect(self._live_runs), name="connect")
        self.run_worker(self._look(), name="records")
        self._choose()

    def on_unmount(self) -> None:
        for live in self._live_runs:
            live.feed.close()

    async def _follow_series(self) -> None:
        """Show what has changed. The lines are made in a thread: those of many runs would hold up the screen."""
        due = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TICK_S)
            is_asked = self._changed.is_set()
            self._changed.clear()
            live = list(self._live_runs)
            changed = await asyncio.to_thread(lambda runs: [run.refresh() for run in runs], live)
            self._news = self._news or any(changed)
            began = time.monotonic()
            if is_asked or (self._news and began >= due):
                self._news = False
                chosen, live = self._chosen, list(self._live_runs)
                quick = self._is_quick
                made = self._made(chosen, live) if quick else await asyncio.to_thread(self._made, chosen, live)
                if self._changed.is_set():
                    continue  # the user has chosen something else meanwhile
                self._show_made(made)
                due = time.monotonic() + _SHARE * (time.monotonic() - began)

    @property
    def _is_quick(self) -> bool:
        return len(self._live_runs) * len(self._charts) <= _FEW

    async def _look(self) -> None:
        """Look for what has become of runs without a host, and for runs of the sweep that have begun."""
        while True:
            await read_again(self._live_runs)
            for live in await asyncio.to_thread(self._begun):
                self._live_runs.append(live)
                self._colours.setdefault(live.configuration, live.colour)
                live.feed.connect()
                self._news = True
            await asyncio.sleep(LOOK_S)

    def _begun(self) -> list[LiveRun]:
        """Runs of the sweep that are not followed yet."""
        known = {each.run.path for each in self._live_runs}
        begun = [run for run in (self._sweep() if self._sweep else ()) if run.path not in known]
        return _live_runs(begun, self._allowance, not self.mario.read_only, lambda done: None) if begun else []

    # ------------------------------------------------------------------------------------------ what is shown

    def reach(self) -> tuple[float, float]:
        series = [each for chart in self._charts.values() for each in chart.series]
        return reach_of(series, self.view.axis)

    def draw_charts(self) -> None:
        super().draw_charts()
        self._show_values()

    def _series(self, chosen: _Chosen, entry: _Entry, metric: str) -> Series:
        pinned = entry.key in chosen.pinned
        series = [each.series(metric) for each in entry.runs]
        if not chosen.averaged:
            (one,) = series
            return replace(one, pinned=pinned)
        mean = self._means.over_seeds((entry.key, metric), series, entry.name, self._colours[entry.key])
        return replace(mean, name=entry.name, pinned=pinned)

    def _choose(self, **changes: Any) -> None:
        """Change what is chosen, and show it: at once, or as soon as the lines of many runs are prepared."""
        self._chosen = replace(self._chosen, **changes)
        if self._is_quick:
            self._show_made(self._made(self._chosen, self._live_runs))
        else:
            self._changed.set()

    def _made(self, chosen: _Chosen, live: Sequence[LiveRun]) -> _Made:
        """Return what depends on the runs' data, the filter, and what is hidden or pinned."""
        found = {entry.key: entry for entry in chosen.entries(live)}
        rows = [
            ComparedRun(
                entry.key,
                entry.name,
                self._series(chosen, entry, _RETURN),
                _mean([each.evaluated for each in entry.runs]),
                list(dict.fromkeys(each.seen.status for each in entry.runs)),
                hidden=entry.key in chosen.hidden,
                problem=next((each.seen.problem for each in entry.runs if each.seen.problem), ""),
            )
            for entry in found.values()
        ]
        rows = ranked(rows, chosen.ranked_by(rows))
        shown = [found[row.key] for row in rows if not row.hidden]
        series = {
            metric: [self._series(chosen, entry, metric) for entry in shown]
            for metric in dict.fromkeys([*self._charts, *(own for each in live for own in each.own)])
            if metric != _RETURN
        }
        series[_RETURN] = [row.series for row in rows if not row.hidden]
        return _Made(rows, series, self._differing(chosen, shown))

    def _show_made(self, made: _Made) -> None:
        self._rows, series = made.rows, made.series
        if [row.key for row in self._rows] != self._runs.keys():
            self._runs.refresh(layout=True)
        self.view.reach = reach_of([each for of_chart in series.values() for each in of_chart], self.view.axis)
        self._show_charts(series)
        self.draw_in_turns(
            [self._charts[metric] for metric, lines in series.items() if self._charts[metric].take(lines)]
        )
        self._differences.show(series[_RETURN], made.differing)
        self._show_title(len(series[_RETURN]))
        self._show_values()

    def _show_charts(self, series: Mapping[str, Sequence[Series]]) -> None:
        """Numbers that loops have named have a chart each, which is shown if any of the runs has told them. If all runs
        are reported by loops, so are the others."""
        present = self.present()
        new = {
            metric: Comparison(metric.removeprefix(OWN), self.view, id=f"compare-own-{metric.encode().hex()}")
            for metric in series
            if metric not in self._charts
        }
        self._charts |= new
        self.add_plots(list(new.values()), self._grid)
        are_reported = all(live.is_reported for live in self._live_runs)
        for metric, lines in series.items():
            may_be_off = are_reported or metric.startswith(OWN)
            self._charts[metric].set_class(may_be_off and not any(each.values for each in lines), "-off")
        if self.present() != present:
            self.set_class(any(metric.startswith(OWN) for metric in self._charts), "-many")
            self.lay_out()

    def draw_due(self, _: object) -> None:
        """With charts of such numbers, the charts are scrolled if they have less than `_LEAST_ROWS` each."""
        grid = self._grid
        if self.has_class("-many"):
            rows = -(-sum(chart.display for chart in self._charts.values()) // grid.styles.grid_size_columns)
            each = max(_LEAST_ROWS, grid.size.height // max(1, rows))
            grid.styles.grid_rows = "1fr" if self.is_maximised else str(each)
        super().draw_due(_)

    def _differing(self, chosen: _Chosen, shown: Sequence[_Entry]) -> Mapping[str, Sequence[str]]:
        """The options that differ between what is shown. They don't change, so they are compared once."""
        keys = tuple(entry.key for entry in shown)
        if keys != self._compared[0]:
            options = [entry.runs[0].options for entry in shown]
            self._compared = keys, differences([*map(without_seed, options)] if chosen.averaged else options)
        return self._compared[1]

    def _show_values(self) -> None:
        """The list of runs, with the mean return of each at the crosshair, or the newest."""
        cursor, axis = self.view.cursor, self.view.axis
        places = [row.series.place(math.inf if cursor is None else cursor, axis) for row in self._rows]
        head = "last" if cursor is None else x_text(cursor, axis).removesuffix(" steps")
        nothing = (
            "all runs are hidden" if any(map(self._chosen.matches, self._live_runs)) else "no run matches the filter"
        )
        self._runs.show(self._rows, self._chosen.ranked_by(self._rows), head, places, nothing)

    def _show_title(self, shown: int) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("Compare", style="bold").append(f"  {counted(len(self._live_runs), 'run')}")
        if self._chosen.averaged:
            text.append(f", means over seeds of {counted(shown, 'configuration')}, with 95 % intervals")
        elif shown < len(self._live_runs):
            text.append(f", {shown} shown")
        if left_out := self._allowance.told:
            text.append(f", {left_out}")
        if words := self.filter.words:
            text.append(f", filter “{' '.join(words)}”")
        self._heading.update(text)

    # ------------------------------------------------------------------------------------------ actions

    def action_show_hide(self) -> None:
        """Show or hide the selected run in the charts, and go to the next one."""
        if (selected := self._runs.selected) is not None:
            self._choose(hidden=self._chosen.hidden ^ {selected.key})
            self._runs.action_move(1)

    def action_show_hide_all(self) -> None:
        """Hide all runs but the pinned ones; if any is hidden, show all."""
        keys, hidden = {row.key for row in self._rows}, self._chosen.hidden
        self._choose(hidden=hidden - keys if hidden & keys else hidden | (keys - self._chosen.pinned))

    def action_pin(self) -> None:
        if (selected := self._runs.selected) is not None:
            self._runs.action_move(0)  # the cursor follows the run
            self._choose(pinned=self._chosen.pinned ^ {selected.key})

    def action_sort(self) -> None:
        """Rank the runs by the next of their numbers."""
        names = rankings(self._rows)
        self._choose(ranking=names[(names.index(self._chosen.ranked_by(self._rows)) + 1) % len(names)])

    def action_average(self) -> None:
        """Switch between single runs and the means over seeds."""
        self._choose(averaged=not self._chosen.averaged)

    def action_open(self) -> None:
        """In the list of runs: open the dashboard of the selected one. Elsewhere: maximise the panel."""
        selected = self._runs.selected
        if self.active_panel() is not self._runs or selected is None:
            self.action_maximise()
            return
        run = next(entry.runs[0].run for entry in self._chosen.entries(self._live_runs) if entry.key == selected.key)
        self.mario.open_dashboard(run)

    async def on_list_panel_opened(self) -> None:
        await self.run_action("open")

    def action_filter(self) -> None:
        self.filter.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choose(words=self.filter.words)


def compare(screen: PlaceScreen[Any], runs: Sequence[Run], *, sweep: Callable[[], Sequence[Run]] | None = None) -> None:
    """Compare runs; see `CompareScreen`."""
    save, allowance = not screen.mario.read_only, Allowance(len(runs))
    screen.run_job(
        f"Reading {counted(len(runs), 'run')}",
        lambda progress: _live_runs(runs, allowance, save, progress),
        lambda live: screen.app.push_screen(CompareScreen(live, allowance, sweep=sweep)),
    )


def compare_with_others(screen: PlaceScreen[Any], run: Run) -> None:
    """Show the charts of one run; the newest other runs of its game are in the list, hidden. Errors are shown."""
    save = not screen.mario.read_only

    def work(progress: OnProgress) -> CompareScreen:
        others = _others_of_its_game(run)
        allowance = Allowance(1 + len(others))
        return CompareScreen(_live_runs([run, *others], allowance, save, progress), allowance, hidden=others)

    screen.run_job("Reading the runs", work, screen.app.push_screen)


def _live_runs(runs: Sequence[Run], allowance: Allowance, save: bool, progress: OnProgress) -> list[LiveRun]:
    """The runs in the order of their names. `save`: their colours, for the next time."""
    runs = sorted(runs, key=lambda run: natural(run.name))
    live = []
    for run, colour in zip(runs, colours_of([str(run.path) for run in runs], save=save), strict=True):
        live.append(LiveRun(run, colour, allowance))
        progress(len(live) / len(runs))
    return live


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


def _names_of(groups: Sequence[Sequence[LiveRun]]) -> list[str]:
    """`3 × learning_rate=0.0001`: how many runs, and their options that other configurations do not have."""
    apart = differences([without_seed(runs[0].options) for runs in groups])
    names = []
    for at, runs in enumerate(groups):
        options = " ".join(f"{name}={values[at]}" for name, values in apart.items()) if runs[0].options else ""
        names.append(printable(f"{len(runs)} × {options or runs[0].run.name}"))
    return names
