"""The form of a new run under Textual's pilot."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Static

from mario_tui.app import MarioApp
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import until


def focus(app: MarioApp) -> str:
    """What has the focus: a field's name, `start` or `cancel`; empty if nothing has it."""
    return "" if app.focused is None else str(app.focused.id).removeprefix("edit-")


async def form_of(pilot: Pilot[Any]) -> NewRunScreen:
    """Open the form from home, until its first field has the focus."""
    await pilot.press("n")
    screen = pilot.app.screen
    assert isinstance(screen, NewRunScreen)
    await focused(pilot, "preset")
    return screen


async def focused(pilot: Pilot[Any], name: str) -> None:
    app: Any = pilot.app
    await until(pilot, lambda: focus(app) == name, f"the focus on {name}")


def shown(screen: Any, what: str) -> str:
    return str(screen.query_one(what, Static).render())
