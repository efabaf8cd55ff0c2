"""Notices that stay, and a server of the terminal UI for the tests of `mario-tui serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.notifications import Notification

from tests.support.web import Served, serving


@pytest.fixture(autouse=True)
def notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a notice of three seconds would be gone before a test has looked for it."""
    monkeypatch.setattr(Notification, "time_left", property(lambda notice: 3600.0))


@pytest.fixture
async def served(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server with the command-line arguments in `request.param`, and a browser that has not loaded its page yet."""
    async with serving(tmp_path, *getattr(request, "param", ())) as served:
        yield served
