"""Sweeps: many runs that differ in options and seeds, started a few at a time by a queue, and compared by setting.

`command` is `mario-tui sweep`; `listed` makes the row of a sweep on the home screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.protocol.messages import State
from engine.runs.registry import SWEEP_FILE
from engine.runs.run import Annotation, Run, RunRecord
from engine.runs.sweep import Sweep, SweepPlan
from mario_tui.data.listed import Listed, ListedSweep
from mario_tui.data.run_status import RunStatus
from mario_tui.extras.sweeps.results import commands_of, results_of, state_of_sweep

if TYPE_CHECKING:
    from textual.screen import Screen


def listed(folder: Path, runs: Sequence[Listed]) -> Listed:
    """Return the row of a sweep, whose record sums up its runs. Raises `OSError` or `UserError` if it can't be read."""
    plan = _plan(folder, (folder / SWEEP_FILE).stat().st_mtime_ns)
    return _listed_sweep(Sweep(folder), plan, runs)


def _screen(sweep: Sweep) -> Screen[Any]:
    from mario_tui.extras.sweeps.screen import SweepScreen

    return SweepScreen(sweep)


@lru_cache(256)
def _plan(folder: Path, written: int) -> SweepPlan:
    return Sweep(folder).plan()


def _listed_sweep(sweep: Sweep, plan: SweepPlan, runs: Sequence[Listed]) -> Listed:
    records = [each.record for each in runs]
    known = {each.run.path: each.record for each in runs}
    status = state_of_sweep(sweep, plan, results_of(sweep, plan, lambda run: known.get(run.path)))
    is_done = status is RunStatus.FINISHED
    steps = plan.planned * max(record.steps for record in records)
    env_steps = sum(record.env_steps for record in records)
    alerted = max(
        (each for each in records if each.alert), key=lambda each: (each.alert_at, each.updated_at), default=None
    )
    record = RunRecord(
        name=sweep.name, game=records[0].game, task=records[0].task, runner="sweep",
        state="finished" if status is RunStatus.STOPPED else cast(State, str(status)),
        reason="all runs are done" if is_done else "",
        steps=steps,
        # Runs do a few steps more than they have to, which must not make up for those that were not begun.
        env_steps=env_steps if is_done else min(env_steps, steps - 1),
        episodes=sum(record.episodes for record in records), wall_s=sum(record.wall_s for record in records),
        created_at=max(record.created_at for record in records),  # so it is listed above its newest run
        updated_at=max(record.updated_at for record in records),
        alerts=sum(record.alerts for record in records), alert=f"{alerted.name}: {alerted.alert}" if alerted else "",
    )  # fmt: skip
    found = ListedSweep(
        sweep, len(plan.members), tuple(each.run for each in runs), partial(commands_of, plan), partial(_screen, sweep)
    )
    return Listed(Run(sweep.path), record, Annotation(), found)
