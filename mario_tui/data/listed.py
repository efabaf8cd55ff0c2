"""The rows of the home screen: runs, and a row for each sweep, under which its runs are folded.

What makes those of sweeps is found in `mario_tui.features`; without it, their runs have a row each like any others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from engine.runs.registry import KnownRecords, list_records
from engine.runs.run import Annotation, Run, RunRecord, read_annotation
from engine.runs.sweep import Sweep
from engine.runtime.text import printable
from mario_tui.data.run_status import RunStatus
from mario_tui.features import group_of

if TYPE_CHECKING:
    from textual.screen import Screen


@dataclass(frozen=True)
class ListedSweep:
    """A sweep, and those of its runs that have begun."""

    sweep: Sweep
    planned: int
    runs: tuple[Run, ...]
    commands: Callable[[], list[str]]
    """Returns what makes sweeps with these runs."""
    screen: Callable[[], Screen[Any]]
    """Makes the screen that shows it."""


@dataclass(frozen=True)
class Listed:
    """A run and its record at the time of reading; or a sweep, with a record that sums up its runs."""

    run: Run
    record: RunRecord
    annotation: Annotation
    sweep: ListedSweep | None = None
    member_of: str = ""
    """The key of the sweep that it belongs to, if that has a row."""

    @property
    def key(self) -> str:
        return str(self.run.path)

    @property
    def status(self) -> RunStatus:
        return RunStatus.of_record(self.record)

    @property
    def label(self) -> str:
        """Its name, and whether it is a sweep or belongs to one."""
        of = f" (sweep of {self.sweep.planned})" if self.sweep else ""
        return ("  " if self.member_of else "") + printable(self.record.name) + of

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run, or those of the sweep."""
        return (self.run,) if self.sweep is None else self.sweep.runs


def read_listed(run_dir: str | None, known: KnownRecords | None = None) -> list[Listed]:
    """All rows; see `list_records`. Raises `UserError` if the runs can't be listed."""
    by_folder = dict[Path, list[Listed]]()
    for run, record in list_records(run_dir, known):
        with contextlib.suppress(UserError):  # deleted in the meantime
            by_folder.setdefault(run.path.parent, []).append(Listed(run, record, read_annotation(run)))
    rows = list[Listed]()
    for folder, inside in by_folder.items():
        with contextlib.suppress(OSError, UserError):  # it can't be read
            if (group := group_of(folder)) is not None:
                sweep: Listed = group.listed(folder, inside)
                rows += [sweep, *(replace(each, member_of=sweep.key) for each in inside)]
                continue
        rows += inside
    return rows
