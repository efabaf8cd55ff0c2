"""Notices that stay, and a home that has read its runs and is never old."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.notifications import Notification
from textual.pilot import Pilot

from mario_tui.app import MarioApp
from mario_tui.screens import table_screen
from mario_tui.screens.home import HomeScreen
from tests.support.app import until


@pytest.fixture(autouse=True)
def notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a notice of three seconds would be gone before a test has looked for it."""
    monkeypatch.setattr(Notification, "time_left", property(lambda notice: 3600.0))


@pytest.fixture(autouse=True)
def nothing_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a reading may take long, which the screen would say."""
    monkeypatch.setattr(table_screen, "OLD_S", 3600.0)


@pytest.fixture(autouse=True)
def home_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test begins once home has read the runs, which it does while it is on the screen."""
    run_test = MarioApp.run_test

    @asynccontextmanager
    async def waiting(app: MarioApp, **options: Any) -> AsyncIterator[Pilot[None]]:
        async with run_test(app, **options) as pilot:
            homes = [screen for screen in app.screen_stack if isinstance(screen, HomeScreen)]
            await until(pilot, lambda: all(home.has_read for home in homes), "the list of runs")
            yield pilot

    monkeypatch.setattr(MarioApp, "run_test", waiting)
