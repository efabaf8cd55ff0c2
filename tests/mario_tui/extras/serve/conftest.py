"""A server for tests of `mario-tui serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.web import Served, serving


@pytest.fixture
async def served(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server with the command-line arguments in `request.param`, and a browser that has not loaded its page yet."""
    async with serving(tmp_path, *getattr(request, "param", ())) as served:
        yield served
