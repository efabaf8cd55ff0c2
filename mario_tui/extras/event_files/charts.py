"""Live charts of one event file or a folder of them: one chart per scalar, one series per subfolder, or per setting the
mean over its seeds."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from engine.runtime.text import printable
from mario_tui.data.differences import natural
from mario_tui.data.format import counted
from mario_tui.data.keys import bindings
from mario_tui.extras.event_files import MOST_SERIES, EventFolder
from mario_tui.extras.event_files.contents import EventContentsScreen, summary
from mario_tui.extras.event_files.history import History
from mario_tui.extras.event_files.seeds import by_setting, setting_of
from mario_tui.screens.panel_grid import ChartScreen
from mario_tui.widgets.base.footer import FilterInput, KeyFooter
from mario_tui.widgets.charts.comparison import Comparison, Series, over_seeds, reach_of
from mario_tui.widgets.charts.plot import Plot

_READ_S = 2.0
_PAUSE_PER_DRAWING = 4.0
"""Minimum pause between two drawings while a folder is loading, as a multiple of the time that the first one took."""
_MOST_CHARTS = 60
_WIDTHS = (76, 130, 190)
"""Widths of the screen from which on there is one more column of charts."""
_LEAST_ROWS = 12
"""Minimum height of a chart; fewer charts than the screen has room for are higher."""
_MOST_SUBFOLDERS, _MOST_BROKEN = 40, 10
"""Maximum number of subfolders, and of broken files, named on the screen."""


class ChartsScreen(ChartScreen):
    """Reads new scalars every two seconds, in a thread."""

    PLACE = "charts"
    STEPS = "step"
    BINDINGS = bindings("charts")
    CSS_PATH = "charts.tcss"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.events = EventFolder(folder)
        self._colours: dict[str, int] = {}
        """By subfolder or setting, in the order in which they were found."""
        self._averaged = False
        """Whether subfolders that are seeds of a setting are shown as their mean."""
        self._logarithmic: set[str] = set()
        """The tags with a log scale when their charts were last on the screen."""
        self._maximised: str | None = None
        """Tag of the maximised chart, which the filter may have removed."""
        self._sorted_by = self.view.axis
        self._showing = asyncio.Lock()  # `_show` waits for widgets, and a key and the reader may call it meanwhile

    def compose(self) -> ComposeResult:
        self._heading, self._broken_files = Static(id="title"), Static(id="broken")
        yield self._heading
        yield self._broken_files
        grid = VerticalScroll(id="grid")
        yield grid
        self._filter = FilterInput("filter words; enter: keep, esc: clear", back=grid)
        yield self._filter
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one("#grid").focus()
        self.run_worker(self._follow(), name="events")

    def draw_due(self, _: object) -> None:
        self._lay_out()
        super().draw_due(_)

    async def _follow(self) -> None:
        """Read, and draw what was read: while a large folder is loading, drawing gets a share of the time."""
        due, changed = 0.0, True
        while True:
            news = await asyncio.to_thread(self.events.collect)
            async with self._showing:
                changed |= self.events.take_in(news)
            began = time.monotonic()
            if changed and (began >= due or not news.more):
                await self._show()
                changed = False
                due = time.monotonic() + _PAUSE_PER_DRAWING * (time.monotonic() - began)
            await asyncio.sleep(0 if news.more else _READ_S)

    # ------------------------------------------------------------------------------------------ what is shown

    def plots(self) -> list[Plot]:
        return list(self.query(Comparison))

    def reach(self) -> tuple[float, float]:
        series = [each for chart in self.query(Comparison) for each in chart.series]
        return reach_of(series, self.view.axis)

    async def _show(self) -> None:
        """Create the charts that match the filter, and draw what has changed."""
        async with self._showing:
            await self._make_and_draw()

    async def _make_and_draw(self) -> None:
        words = self._filter.words
        found = [tag for tag in sorted(self.events.tags, key=natural) if all(word in tag.lower() for word in words)]
        shown = found[:_MOST_CHARTS]
        charts = await self._charts_of(shown)
        for histories in self.events.tags.values():
            for inside in by_setting(histories) if self._averaged else histories:
                self._colour(inside)
        for tag in shown:
            charts[tag].show(self._series(tag))
        self.draw_charts()
        self._heading.update(self._title(len(found)))
        self._broken_files.display = bool(self.events.broken)
        self._broken_files.update(self._broken())

    async def _charts_of(self, tags: Sequence[str]) -> dict[str, Comparison]:
        """The charts of these tags, in their order; those of other tags are removed."""
        before = {str(chart.name): chart for chart in self.query(Comparison)}
        if list(before) == list(tags):
            return before
        grid = self.query_one("#grid")
        charts = {tag: before.get(tag) or self._new_chart(tag) for tag in tags}
        gone = [chart for tag, chart in before.items() if tag not in charts]
        self._logarithmic -= before.keys()
        self._logarithmic |= {tag for tag, chart in before.items() if chart.logarithmic}
        if self.focused in gone:
            self.set_focus(grid)
        async with grid.batch():
            await grid.remove_children(gone)
            await grid.mount_all(chart for tag, chart in charts.items() if tag not in before)
            places = {tag: place for place, tag in enumerate(tags)}
            grid.sort_children(key=lambda chart: places[str(chart.name)])
            self._lay_out()
        return charts

    def _new_chart(self, tag: str) -> Comparison:
        chart = Comparison(printable(tag) or "(no name)", self.view, name=tag)
        chart.logarithmic = tag in self._logarithmic
        return chart

    def _series(self, tag: str) -> list[Series]:
        """One series per subfolder or setting. Other programs may write steps in any order, so they are sorted by x."""
        histories = self.events.tags.get(tag, {})
        if not self._averaged:
            return self._measured(histories, by_steps=self._sorted_by == "steps")
        series = []
        for name, subfolders in by_setting(histories).items():
            seeds = self._measured({each: histories[each] for each in subfolders}, by_steps=True)
            index = self._colour(name)
            series.append(over_seeds(seeds, name, index) if len(seeds) > 1 else replace(seeds[0], index=index))
        return series

    def _colour(self, name: str) -> int:
        return self._colours.setdefault(name, len(self._colours))

    def _measured(self, histories: Mapping[str, History], *, by_steps: bool) -> list[Series]:
        series = []
        x = 0 if by_steps else 1
        for inside, history in histories.items():
            columns: Sequence[Sequence[float]] = (history.steps, history.seconds, history.values, history.means)
            if not history.ordered:
                placed = (point for point in zip(*columns, strict=True) if math.isfinite(point[1]))
                points = sorted(placed, key=lambda point: point[x])
                columns = list(zip(*points, strict=True)) if points else [()] * 4
            steps, seconds, values, means = columns
            index = 0 if self._averaged else self._colour(inside)
            seed = setting_of(inside)[1]
            series.append(Series(inside, index, steps, seconds, values, means=means, seed=seed))
        return series

    def draw_charts(self) -> None:
        if self._sorted_by != self.view.axis:
            self._sorted_by = self.view.axis
            for chart in self.query(Comparison):
                chart.show(self._series(str(chart.name)))
        super().draw_charts()

    def _title(self, found: int) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(printable(str(self.events.path)), style="bold")
        text.append(f"  {counted(found, 'scalar')}")
        if self._filter.words:
            text.append(f" of {len(self.events.tags)} match “{' '.join(self._filter.words)}”")
        if found > _MOST_CHARTS:
            text.append(f", first {_MOST_CHARTS} shown; / filters")
        if self.events.left_out:
            text.append(f", more than {MOST_SERIES:,} series: the rest is skipped")
        if not self.events.tags:
            text.append(": none yet" if self.events.has_files else ": waiting for event files", style="dim")
        if self.events.loading is not None:
            text.append(f", loading: {self.events.loading:.0%}", style="bold")
        if others := summary(self.events):
            text.append(f"  also {others} ({self.mario.key('charts.contents')})", style="dim")
        if list(self._colours) not in ([], ["."]):
            text.append("\n")
            seeds = (
                by_setting({each for of_tag in self.events.tags.values() for each in of_tag}) if self._averaged else {}
            )
            counts = {name: f" ({len(each)} seeds)" for name, each in seeds.items() if len(each) > 1}
            for inside, colour in islice(self._colours.items(), _MOST_SUBFOLDERS):
                each = Series(inside, colour)
                text.append(f"{each.marker} {printable(inside)}{counts.get(inside, '')}  ", style=f"bold {each.colour}")
        return text

    def _broken(self) -> Text:
        """The files that can't be read any further, and why."""
        files = [
            printable(f"✗\N{NO-BREAK SPACE}{path.relative_to(self.events.root)}: {why}")
            for path, why in islice(self.events.broken.items(), _MOST_BROKEN)
        ]
        if len(self.events.broken) > _MOST_BROKEN:
            files.append(f"and {len(self.events.broken) - _MOST_BROKEN:,} more")
        return Text("\n".join(files), style="bold red", overflow="fold")

    @property
    def is_maximised(self) -> bool:
        return self._maximised is not None and self.maximised is not None

    @property
    def maximised(self) -> Comparison | None:
        """The maximised chart; None if there is none, or if it is not among those shown."""
        return next((chart for chart in self.query(Comparison) if chart.name == self._maximised), None)

    def _lay_out(self) -> None:
        """Give the maximised chart the screen, or divide it among all charts."""
        grid, charts, maximised = self.query_one("#grid"), list(self.query(Comparison)), self.maximised
        for chart in charts:
            chart.display = maximised in (None, chart)
        count = 1 if maximised is not None else max(1, len(charts))
        rows = -(-count // (1 + bisect_right(_WIDTHS, self.size.width)))
        grid.styles.grid_size_columns = -(-count // rows)
        grid.styles.grid_rows = str(max(_LEAST_ROWS if maximised is None else 1, grid.size.height // rows))

    # ------------------------------------------------------------------------------------------ actions

    def active_plot(self) -> Plot | None:
        """The maximised chart, else the focused one."""
        return self.maximised or super().active_plot()

    def action_next_panel(self) -> None:
        maximised = self.maximised
        if maximised is None:
            self.focus_next()
            return
        charts = list(self.query(Comparison))
        self._maximise(charts[(charts.index(maximised) + 1) % len(charts)])

    def action_maximise(self) -> None:
        if self.maximised is not None:
            self._maximise(None)
        elif (plot := self.active_plot()) is not None:
            self._maximise(plot)
        else:
            self.notify(f"Select a chart first: {self.mario.key('charts.next_panel')}", timeout=3)

    def _maximise(self, plot: Plot | None) -> None:
        self._maximised = None if plot is None else str(plot.name)
        self._lay_out()
        self.refresh_bindings()
        if plot is not None:
            self.set_focus(plot)

    def action_contents(self) -> None:
        """Show what else is in the files."""
        self.app.push_screen(EventContentsScreen(self.events))

    async def action_average(self) -> None:
        """Switch between subfolders and the means over seeds."""
        self._averaged = not self._averaged
        self._colours.clear()
        await self._show()

    def action_filter(self) -> None:
        self._filter.open()

    async def on_input_changed(self, event: Input.Changed) -> None:
        await self._show()

    def action_back(self) -> None:
        """Hide the crosshair, restore all charts, clear the filter, then go back."""
        if self.hide_cursor() or self._filter.close():
            return
        if self.maximised is not None:
            self._maximise(None)
        else:
            self.dismiss(None)
