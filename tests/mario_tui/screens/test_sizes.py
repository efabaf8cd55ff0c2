"""What the dashboard shows in terminals of different sizes."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets._footer import FooterKey

from mario_tui.app import MarioApp
from mario_tui.screens.dashboard import DashboardScreen
from tests.support.app import recorded_run, shown_as, text, too_small, until

CHARTS = {"chart-return": "4 Mean return", "chart-loss": "5 TD loss", "chart-q": "6 Q estimate"}
ALWAYS = {"actors", "replay", *CHARTS}
ALL = {*ALWAYS, "machine", "evaluations", "log"}
PANELS = {
    (40, 12): ALL,  # one column, which scrolls
    (60, 50): ALL,
    (80, 12): ALWAYS,  # two columns from here on; what has no room in them is a key away
    (80, 15): ALWAYS,
    (80, 24): ALL - {"evaluations"},
    (120, 17): ALWAYS,
    (120, 40): ALL,
    (200, 60): ALL,
    (250, 70): ALL,
}
"""Panels that have a place, for each size."""
QUICK = [(40, 12), (80, 12), (80, 24), (120, 40)]


def placed(dashboard: DashboardScreen) -> dict[str, Any]:
    return {str(panel.id): panel for panel in dashboard.panels if panel.display and panel.size.area}


def is_laid_out(dashboard: DashboardScreen, width: int, height: int) -> bool:
    """Whether the dashboard has been laid out for a size, which takes several turns after a change, and its header
    names the panels without room."""
    panels, right = placed(dashboard), dashboard.query_one("#body").region.right
    more = re.search(r"  (\d[^\n]*: more|more panels: )[^\n]*", text(dashboard, "header"))
    hidden = [number for number, panel in enumerate(dashboard.panels[:8], 1) if panel.id not in panels]
    named = [int(digit) for digit in re.findall(r"\d", more[0] if more else "")]
    return right == width and panels.keys() == PANELS[width, height] and named == hidden


def assert_laid_out(dashboard: DashboardScreen, width: int, height: int) -> None:
    """Panels have room for what they are for, none covers or leaves the screen, and no line is cut."""
    panels, body = placed(dashboard), dashboard.query_one("#body").region
    assert not any(one.region.overlaps(other.region) for one, other in combinations(panels.values(), 2))
    for name, panel in panels.items():
        assert body.x <= panel.region.x and panel.region.right <= body.right == width
        assert width < 80 or (body.y <= panel.region.y and panel.region.bottom <= body.bottom == height - 1)
        assert all(cell_len(line) <= panel.size.width for line in text(dashboard, name).splitlines()), name
        assert panel.body[1] >= (2 if name == "actors" else 1), name
    for name, title in CHARTS.items():
        head, *lines = text(dashboard, name).splitlines()
        assert title in head
        drawn = [re.search("[⠁-⣿]", line) for line in lines]
        assert any(drawn) and re.search("[●▲▼]", "".join(lines)), f"{name} has a line and marks in it"
    header = text(dashboard, "header")
    assert "✓ finished" in header and "step 20,000/20,000" in header


def has_footer(dashboard: DashboardScreen, width: int) -> bool:
    """Whether the footer has what it must; it is made anew whenever the keys change."""
    keys = [key for key in dashboard.query(FooterKey) if key.display and key.region.width]
    seen = [key.action for key in keys if key.region.right <= width and key.region.y == dashboard.size.height - 1]
    return seen[:2] == ["toggle_game", "maximise"] and {"detach", "help"} <= {*seen}


async def assert_reachable(pilot: Pilot[None], dashboard: DashboardScreen) -> None:
    """Each panel comes into sight by its digit: in place, by scrolling, or with the whole screen."""
    body = dashboard.query_one("#body")
    for number, panel in enumerate(dashboard.panels[:8], 1):
        await pilot.press(str(number))
        await until(pilot, lambda panel=panel: panel.size.area and panel.region.overlaps(body.region), str(panel.id))
        assert f" {number} {panel.title}" in text(dashboard, str(panel.id)).splitlines()[0]
        if dashboard.maximised is not None:
            await pilot.press("escape")


@pytest.mark.parametrize("sizes", [QUICK, pytest.param([*PANELS, *reversed(PANELS)], marks=pytest.mark.long)])
async def test_every_size_has_what_the_dashboard_is_for(sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    async with MarioApp(recorded_run(tmp_path)).run_test(size=(50, 20)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: dashboard.shown.end, "the recording")
        for width, height in sizes:
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda size=(width, height): is_laid_out(dashboard, *size), "the layout")
            assert_laid_out(dashboard, width, height)
            await until(pilot, lambda width=width: has_footer(dashboard, width), "the footer")
            if height == 12:
                await assert_reachable(pilot, dashboard)
        await pilot.resize_terminal(39, 11)
        await until(pilot, lambda: "must be at least 40x12, got 39x11" in too_small(pilot.app), "the least size")
