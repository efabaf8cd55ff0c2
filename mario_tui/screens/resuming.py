"""Resuming runs that have ended: one, from home or from its dashboard, or several in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.errors import UserError
from engine.host.client import HostProcess
from engine.runs.checkpoints import OnProgress
from engine.runs.run import Run
from engine.runtime.threads import available_cores
from mario_tui.data.format import counted
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.dialogs import ConfirmScreen
from mario_tui.screens.new_run import NewRunScreen, start_run


def resume(screen: PlaceScreen[Any], run: Run, started: Callable[[HostProcess | None], None]) -> None:
    """Resume a run and call `started` with its host. If it has done all its steps or episodes, ask for a higher limit
    first; `started` gets None if the user cancels the form. Errors are shown."""
    try:
        if more := _higher_limits(run):
            screen.app.push_screen(NewRunScreen(resume=run, options=more), started)
        else:
            screen.run_job(f"Resuming {run.name}", partial(start_run, {}, run, None, None), started)
    except UserError as error:
        screen.show_error(error)


def resume_several(screen: PlaceScreen[Any], runs: Sequence[Run], started: Callable[[list[HostProcess]], None]) -> None:
    """Ask, then resume runs in the background, and call `started` with the hosts. Runs that train or have done all
    their steps or episodes are left out. Errors are shown; one run's keeps no other from being resumed."""

    def sorted_out(found: tuple[list[Run], list[str]]) -> None:
        ready, left_out = found
        if not ready:
            screen.notify("\n".join(["None of these can be resumed", *left_out]), severity="warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                screen.run_job(f"Resuming {counted(len(ready), 'run')}", partial(_start_all, ready), done)

        cores = counted(available_cores(), "core")
        together = f"All at once, in the background: they share {cores}, besides what trains already."
        lines = [", ".join(run.name for run in ready), together if len(ready) > 1 else "", *left_out]
        question = f"Resume {counted(len(ready), 'run')}?"
        screen.app.push_screen(ConfirmScreen(question, "\n".join(filter(None, lines))), answered)

    def done(outcomes: list[HostProcess | UserError]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, UserError):
                screen.show_error(outcome)
        started([outcome for outcome in outcomes if isinstance(outcome, HostProcess)])

    screen.run_job("Reading the runs", partial(_sorted_out, runs), sorted_out)


def _sorted_out(runs: Sequence[Run], progress: OnProgress) -> tuple[list[Run], list[str]]:
    """The runs that can be resumed, and why others can't."""
    ready, running, finished, failures = list[Run](), list[str](), list[str](), list[str]()
    for number, run in enumerate(runs):
        progress(number / len(runs))
        try:
            if run.is_alive():
                running.append(run.name)
            elif _higher_limits(run):
                finished.append(run.name)
            else:
                ready.append(run)
        except UserError as error:
            failures.append(str(error))
    left_out = [f"Running already: {', '.join(running)}"] if running else []
    left_out += [f"Finished (resume one alone, to raise its limit): {', '.join(finished)}"] if finished else []
    return ready, left_out + failures


def _start_all(runs: Sequence[Run], progress: OnProgress) -> list[HostProcess | UserError]:
    """A host for each run, or why there is none."""
    outcomes = list[HostProcess | UserError]()
    for number, run in enumerate(runs):
        progress(number / len(runs))
        try:
            outcomes.append(start_run({}, run, None, None, lambda done: None))
        except UserError as error:
            outcomes.append(error)
    return outcomes


def _higher_limits(run: Run) -> dict[str, str]:
    """Options with which a run that has done all its steps or episodes goes on, else none. Raises `UserError`."""
    record, episodes = run.record(), run.config().episodes
    more = {}
    if record.env_steps >= record.steps:
        more["steps"] = str(2 * record.steps)
    if episodes is not None and record.episodes >= episodes:
        more["episodes"] = str(2 * episodes)
    return more
