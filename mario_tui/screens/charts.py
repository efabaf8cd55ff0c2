"""Live charts of one event file or a folder of them: one chart per scalar, one series per subfolder."""

from __future__ import annotations

import asyncio
import math
from itertools import islice
from pathlib import Path

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, Static

from engine.runtime.text import printable
from mario_tui.data.event_files import MOST_SERIES, EventFolder
from mario_tui.data.format import counted, duration, number, steps
from mario_tui.data.keys import bindings
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.charts.comparison import Comparison, Series

_READ_S = 2.0
_MOST_CHARTS = 60
_MOST_SUBFOLDERS, _MOST_BROKEN = 40, 10
"""Maximum number of subfolders, and of broken files, named on the screen."""


class ChartsScreen(PlaceScreen[None]):
    """Reads new scalars every two seconds, in a thread."""

    PLACE = "charts"
    BINDINGS = bindings("charts")
    CSS_PATH = "charts.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-one"), (76, "-two"), (130, "-three"), (190, "-four")]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.events = EventFolder(folder)
        self._over_time = False
        self._filter_text = ""
        self._showing = asyncio.Lock()  # a key and the reader may call `_show` at the same time

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="broken")
        yield VerticalScroll(id="grid")
        yield Input(id="filter", placeholder="filter words; enter: keep, esc: clear", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._filter.display = False
        self.query_one("#grid").focus()
        self.run_worker(self._follow(), name="events")

    @property
    def _filter(self) -> Input:
        return self.query_one("#filter", Input)

    async def _follow(self) -> None:
        while True:
            news = await asyncio.to_thread(self.events.collect)
            if self.events.take_in(news) or not self.events.tags:
                await self._show()
            await asyncio.sleep(0 if news.more else _READ_S)

    async def _show(self) -> None:
        """Create the charts that match the filter, and draw what has changed."""
        async with self._showing:
            await self._make_and_draw()

    async def _make_and_draw(self) -> None:
        words = self._filter_text.lower().split()
        found = [tag for tag in sorted(self.events.tags) if all(word in tag.lower() for word in words)]
        shown = found[:_MOST_CHARTS]
        grid = self.query_one("#grid")
        charts = {chart.name: chart for chart in grid.query(Comparison)}
        if list(charts) != shown:
            await grid.remove_children()
            charts = {tag: Comparison(name=tag) for tag in shown}
            await grid.mount_all(charts.values())
        subfolders = sorted({inside for histories in self.events.tags.values() for inside in histories})
        places = {inside: index for index, inside in enumerate(subfolders)}
        for tag in shown:
            self._draw(charts[tag], tag, places)
        self.query_one("#title", Static).update(self._title(len(found), subfolders))
        broken = self.query_one("#broken", Static)
        broken.display = bool(self.events.broken)
        broken.update(self._broken())

    def _draw(self, chart: Comparison, tag: str, places: dict[str, int]) -> None:
        series = []
        for inside, history in sorted(self.events.tags[tag].items()):
            points = [(seconds if self._over_time else float(step), value) for step, seconds, value in history.points]
            points = sorted((point for point in points if math.isfinite(point[0])), key=lambda point: point[0])
            series.append(Series(inside, places[inside], points))
        last = series[-1].drawable
        gaps = sum(len(each.points) - len(each.drawable) for each in series)
        value = number(last[-1][1]) if last else ""
        if gaps:
            value = f"{value} · {gaps:,} NaN/inf".lstrip()
        chart.show(series, duration if self._over_time else steps, title=printable(tag), value=value)

    def _title(self, found: int, subfolders: list[str]) -> Text:
        over = "time" if self._over_time else "steps"
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(printable(str(self.events.path)), style="bold")
        text.append(f"  {counted(found, 'scalar')} over {over}")
        if found > _MOST_CHARTS:
            text.append(f", first {_MOST_CHARTS} shown; / filters")
        if self.events.left_out:
            text.append(f", more than {MOST_SERIES:,} series: the rest is skipped")
        if not self.events.tags:
            text.append(": none yet", style="dim")
        if subfolders not in ([], ["."]):
            text.append("\n")
            for index, inside in enumerate(subfolders[:_MOST_SUBFOLDERS]):
                each = Series(inside, index, ())
                text.append(f"{each.marker} {printable(inside)}  ", style=f"bold {each.colour}")
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

    # ------------------------------------------------------------------------------------------ actions

    async def action_axis(self) -> None:
        self._over_time = not self._over_time
        await self._show()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    async def on_input_changed(self, event: Input.Changed) -> None:
        self._filter_text = event.value
        await self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.query_one("#grid").focus()

    async def action_back(self) -> None:
        """Clear the filter; without one, go home."""
        if self._filter.display:
            self._filter.value = ""
            self._filter.display = False
            self.query_one("#grid").focus()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.app.exit()
