"""The game beside the other panels, in a narrow and in a very wide terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runs.run import Run
from mario_tui.app import MarioApp
from tests.support.app import opened, said, until
from tests.support.source import serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with serving(tmp_path_factory.mktemp("served"), "--rate", "50", "--lanes", "4", "--history", "20000") as run:
        yield run


async def test_g_brings_the_game_into_sight_and_nothing_covers_it(served: Run, tmp_path: Path) -> None:
    app = MarioApp(served, run_dir=str(tmp_path))
    async with app.run_test(size=(60, 20)) as pilot:
        dashboard = await opened(pilot)
        await pilot.press("g")
        game, body = dashboard.query_one("#game"), dashboard.query_one("#body")
        await until(pilot, lambda: game.size.height and game.region in body.region, "the whole game in sight")
        await until(pilot, lambda: game.frame, "a picture")
        assert said(app) == ""
        await pilot.press("g")
        await until(pilot, lambda: not game.display, "no game")


async def test_charts_beside_the_game_are_as_wide_as_it_in_a_very_wide_terminal(served: Run, tmp_path: Path) -> None:
    async with MarioApp(served, run_dir=str(tmp_path)).run_test(size=(200, 60)) as pilot:
        dashboard = await opened(pilot)
        await pilot.press("g")
        game, charts = dashboard.query_one("#game"), dashboard.charts
        await until(pilot, lambda: game.size.height, "the game")
        await until(pilot, lambda: {chart.size.width for chart in charts} == {game.size.width}, "wide charts")
        assert game.size.height > 20 and min(chart.size.height for chart in charts) >= 8
