"""Resuming a run that has ended, from home and from its dashboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs.run import Run
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.new_run import NewRunScreen, start_run


def resume(screen: PlaceScreen[Any], run: Run, started: Callable[[HostProcess | None], None]) -> None:
    """Resume a run and call `started` with its host. If it has done all its steps or episodes, ask for a higher limit
    first; `started` gets None if the user cancels the form. Errors are shown."""
    try:
        record, episodes = run.record(), run.config().episodes
        more = {}
        if record.env_steps >= record.steps:
            more["steps"] = str(2 * record.steps)
        if episodes is not None and record.episodes >= episodes:
            more["episodes"] = str(2 * episodes)
        if more:
            screen.app.push_screen(NewRunScreen(resume=run, options=more), started)
        else:
            screen.run_job(f"Resuming {run.name}", partial(start_run, {}, run, None, None), started)
    except UserError as error:
        screen.show_error(error)
