"""The dashboard of a run that stands still: its charts by key and by mouse, what is drawn, and its connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.events import MouseScrollUp
from textual.pilot import Pilot

from engine.host.client import HostClient, HostGone
from engine.protocol.messages import Phase
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.feed import Feed
from mario_tui.screens.dashboard import TICK_S
from tests.support.app import app_is_there, opened, text, until
from tests.support.source import serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that stands still, once it is paused: what is measured on its charts stays true."""
    with serving(tmp_path_factory.mktemp("still"), "--rate", "50", "--lanes", "4", "--history", "20000") as run:
        yield run


async def paused(pilot: Pilot[Any]) -> Any:
    """The dashboard of a run that has been paused, with all there is of it."""
    dashboard = await opened(pilot)
    if "paused" not in text(dashboard, "header"):
        await pilot.press("p")
    await until(pilot, lambda: "paused" in text(dashboard, "header"), "the pause")
    count = -1
    while count != (count := len(dashboard.shown.points)):
        await pilot.pause(1.5 * TICK_S)
    return dashboard


async def test_every_kind_of_event_is_marked(still: Run) -> None:
    async with MarioApp(open_run=still).run_test(size=(120, 40)) as pilot:
        dashboard = await paused(pilot)
        last = dashboard.shown.points[-1].env_steps
        phase = Phase(env_steps=last // 2, phase=2, phases=3, name="holes")
        dashboard.feed.take(phase, dashboard.feed._view)
        await until(pilot, lambda: "p" in text(dashboard, "chart-return").splitlines()[-1], "the phase's letter")


async def test_keys_of_the_charts(still: Run) -> None:
    async with MarioApp(open_run=still).run_test(size=(120, 40)) as pilot:
        dashboard = await paused(pilot)
        look, chart = dashboard.view, dashboard.charts[0]
        await pilot.press("plus")
        first, last = dashboard.curves.reach("steps")
        assert look.span == pytest.approx((last - first) / 2, rel=0.1)
        assert look.end is None  # follows the newest
        assert "zoom" in text(dashboard, "chart-return")
        await pilot.press("comma")
        assert look.end < last
        await pilot.press("shift+right", "full_stop")
        assert look.end is None
        await pilot.press("minus", "minus")  # the run has grown meanwhile: once may not be all
        assert look.span is None
        await pilot.press("equals_sign", "plus", "shift+left", "0")
        assert (look.span, look.end) == (None, None)

        await pilot.press("left")
        assert look.cursor is not None
        newest = look.cursor
        await pilot.press("left", "left")
        first, last = dashboard.curves.reach("steps")  # it has grown meanwhile
        assert newest - look.cursor == pytest.approx(2 * (last - first) / chart.columns, rel=0.3)
        for other in dashboard.charts:  # all charts show the same place
            assert " at " in text(dashboard, other.id)
            assert "│" in text(dashboard, other.id)
        assert "◆" in text(dashboard, "chart-return").splitlines()[0]
        await pilot.press("right", "right")
        assert look.cursor == pytest.approx(newest, rel=0.1)
        await pilot.press("escape")
        assert look.cursor is None
        assert app_is_there(dashboard)

        await pilot.press("m")
        assert "ema 0.6" in text(dashboard, "chart-loss")
        await pilot.press("m", "m", "m")
        assert "ema" not in text(dashboard, "chart-loss")
        await pilot.press("5", "l")
        assert [chart.logarithmic for chart in dashboard.charts] == [False, True, False]
        assert "log" in text(dashboard, "chart-loss").splitlines()[0]
        await pilot.press("1", "l")  # no chart in hand: all of them
        assert all(chart.logarithmic for chart in dashboard.charts)
        await pilot.press("l")
        assert not any(chart.logarithmic for chart in dashboard.charts)
        await pilot.press("t")
        assert "training time" in text(dashboard, "chart-q")
        await pilot.press("t")
        assert "to end" in text(dashboard, "chart-q")
        await pilot.press("t")
        assert look.axis == "steps"


async def test_the_mouse_on_a_chart(still: Run) -> None:
    async with MarioApp(open_run=still).run_test(size=(120, 40)) as pilot:
        dashboard = await paused(pilot)
        look, chart = dashboard.view, dashboard.charts[0]
        first, last = dashboard.curves.reach("steps")
        middle = 8 + chart.columns // 2
        await pilot.hover(chart, offset=(middle, 3))
        assert look.cursor == pytest.approx((first + last) / 2, rel=0.05)
        assert " at " in text(dashboard, "chart-loss")
        await pilot._post_mouse_events([MouseScrollUp], widget=chart, offset=(middle, 3), button=0)
        assert look.span is None  # the wheel is for the page
        await pilot.press("plus")
        low, high = look.bounds
        assert low < look.cursor < high
        assert look.end == pytest.approx(last * 0.75, rel=0.1)
        await pilot.mouse_down(chart, offset=(middle, 3))
        await pilot.hover(chart, offset=(middle + 10, 3))
        await pilot.mouse_up(chart, offset=(middle + 10, 3))
        assert look.bounds[0] < low
        await pilot.hover(dashboard.actors)
        await until(pilot, lambda: look.cursor is None, "no crosshair")


async def test_an_unchanged_panel_is_not_sent_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--rate", "50", "--lanes", "4", "--history", "20000") as run:
        async with MarioApp(open_run=run).run_test(size=(120, 40)) as pilot:
            dashboard = await opened(pilot)
            await pilot.press("p")
            await until(pilot, lambda: "paused" in text(dashboard, "header"), "the pause")
            chart = dashboard.charts[0]
            chart.repaint()
            before, chart._dirty_regions = chart._lines, set()
            chart.repaint()
            assert chart._lines == before
            assert not chart._dirty_regions


def test_a_connection_that_comes_after_the_end_is_closed(still: Run) -> None:
    feed, client = Feed(still), HostClient(still)
    feed.close()
    feed.follow(client, feed._view)
    with pytest.raises(HostGone):
        while True:  # what was on its way
            client.receive()
