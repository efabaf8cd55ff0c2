"""The rows of the home screen: runs, and a row for each sweep whose runs are among them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.errors import UserError
from engine.runs.annotation import Annotation, read_annotation
from engine.runs.registry import SWEEP_FILE, list_records
from engine.runs.run import Run, RunRecord
from engine.runs.sweep import Sweep, SweepPlan
from engine.runtime.text import printable
from mario_tui.data.run_status import RunStatus


@dataclass(frozen=True)
class ListedSweep:
    """A sweep, and those of its runs that have begun."""

    sweep: Sweep
    plan: SweepPlan
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Listed:
    """A run and its record at the time of reading; or a sweep, with a record that sums up its runs."""

    run: Run
    record: RunRecord
    annotation: Annotation
    sweep: ListedSweep | None = None

    @property
    def key(self) -> str:
        return str(self.run.path)

    @property
    def status(self) -> RunStatus:
        return RunStatus.of_record(self.record)

    @property
    def label(self) -> str:
        """Its name, and whether it is a sweep."""
        return printable(self.record.name) + (f" (sweep of {len(self.sweep.plan.members)})" if self.sweep else "")

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run, or those of the sweep."""
        return (self.run,) if self.sweep is None else self.sweep.runs


def read_listed(run_dir: str | None) -> list[Listed]:
    """All rows; see `list_runs`. Raises `UserError` if the runs can't be listed."""
    runs, by_folder = list[Listed](), dict[Path, list[Listed]]()
    for run, record in list_records(run_dir):
        with contextlib.suppress(UserError):  # deleted in the meantime
            listed = Listed(run, record, read_annotation(run))
            runs.append(listed)
            by_folder.setdefault(run.path.parent, []).append(listed)
    for folder, inside in by_folder.items():
        with contextlib.suppress(OSError, UserError):  # no sweep, or one that can't be read
            plan = _plan(folder, (folder / SWEEP_FILE).stat().st_mtime_ns)
            runs.append(_listed_sweep(Sweep(folder), plan, inside))
    return runs


@lru_cache(256)
def _plan(folder: Path, written: int) -> SweepPlan:
    return Sweep(folder).plan()


def _listed_sweep(sweep: Sweep, plan: SweepPlan, runs: Sequence[Listed]) -> Listed:
    records = [listed.record for listed in runs]
    done = {listed.run.name for listed in runs if listed.status is RunStatus.FINISHED} | set(plan.pruned)
    is_active = any(listed.status.is_active for listed in runs) or sweep.queue_pid() is not None
    has_failed = any(listed.status.has_failed for listed in runs)
    is_done = len(done) == len(plan.members) and not plan.is_searching
    steps = plan.planned * max(record.steps for record in records)
    env_steps = sum(record.env_steps for record in records)
    record = RunRecord(
        name=sweep.name, game=records[0].game, task=records[0].task, runner="sweep",
        state="running" if is_active else "failed" if has_failed else "finished",
        reason="all runs are done" if is_done else "",
        steps=steps,
        # Runs do a few steps more than they have to, which must not make up for those that were not begun.
        env_steps=env_steps if is_done else min(env_steps, steps - 1),
        episodes=sum(record.episodes for record in records), wall_s=sum(record.wall_s for record in records),
        created_at=max(record.created_at for record in records),  # so it is listed above its newest run
        updated_at=max(record.updated_at for record in records),
    )  # fmt: skip
    found = ListedSweep(sweep, plan, tuple(listed.run for listed in runs))
    return Listed(Run(sweep.path), record, Annotation(), found)
