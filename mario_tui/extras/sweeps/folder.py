"""What the commands and the queue of a sweep do with its folder: they create it, read what has happened to its runs,
and make room for another try.

The journal (`journal.jsonl`), with the run's own record, tells everybody the state of each run (`results`). A line that
is cut off, by a kill or a full disk, or that is none of ours is skipped.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from engine.errors import UserError
from engine.runs import marks
from engine.runs.marks import is_run, user_name, utf8_path
from engine.runs.registry import SWEEP_FILE, name_error
from engine.runs.run import Run, RunRecord
from engine.runs.sweep import (
    JOURNAL_FILE,
    LOCK_BYTES,
    LOCK_FILE,
    MAX_BYTES,
    MOST_RUNS,
    PID_BYTES,
    Count,
    Entry,
    Event,
    Sweep,
    SweepPlan,
)
from engine.runtime.files import is_own, open_regular, read_bounded
from engine.runtime.formats import parsed_json, read_json

STARTUP_SETTINGS = 4
"""Settings that have a finished run before any is pruned. Optuna's default is 5, more than small grids can spare."""
TRIES = 2
"""How often a run is begun, the first time included, before it counts as failed."""
_EARLIER_FOLDER = "earlier"
"""In which is what tries have left whose place another try has."""
_TRIES_FILE = "tries.json"
"""In which earlier versions have counted the tries of each run; 0 for one that was resumed."""
_MAX_RECORD_BYTES = 2**16
"""Of the record of a run: whoever shows a sweep holds those of all."""


def create_sweep(run_dir: Path, name: str, plan: SweepPlan, *, numbered: bool = False) -> Sweep:
    """Create a sweep's folder. With `numbered`, a number follows a name that is taken. Raises `UserError` if the name
    is taken or something can't be written."""
    path = utf8_path(run_dir / name)
    if not numbered and (path / SWEEP_FILE).is_file():
        raise UserError(f"--name: {path} exists already; choose another name, or: mario-tui sweep resume {name}")
    if not numbered and (reason := name_error(name, run_dir)):
        raise UserError(f"--name: {reason}")
    others = (path.with_name(f"{name}-{number}") for number in itertools.count(2)) if numbered else ()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        created = next(each for each in itertools.chain([path], others) if _is_made(each))
    except (OSError, StopIteration) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "exists already"
        raise UserError(f"--run-dir: {path}: can't be written ({reason})") from None
    sweep = Sweep(created)
    try:
        sweep.write_plan(msgspec.structs.replace(plan, name=sweep.name))
    except UserError:
        shutil.rmtree(created, ignore_errors=True)  # the name is free again
        raise
    return sweep


def _is_made(folder: Path) -> bool:
    """Create a folder, unless there is one of this name."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def problem_of(sweep: Sweep, run: Run) -> str:
    """Why what has the place of one of its runs can't be used; empty if it can, or if there is nothing."""
    owners = set[int]()
    for path in (sweep.path, run.path, run.record_path):
        try:
            status = path.lstat()
        except FileNotFoundError:
            break
        except OSError as error:
            return f"{path}: can't be read ({error.strerror or error})"
        if stat.S_ISLNK(status.st_mode):
            return f"{path}: is a link; the runs of a sweep lie in its folder"
        if path == run.record_path and status.st_size > _MAX_RECORD_BYTES:
            return f"{path}: must have at most {_MAX_RECORD_BYTES:,} bytes, got {status.st_size:,}"
        owners.add(status.st_uid)
        if len(owners) > 1:
            return f"{path}: belongs to {user_name(status.st_uid)}, not to the owner of the sweep"
    return ""


def _record_if_begun(run: Run) -> RunRecord | None:
    """The record of a run; None if it has none, or is just being deleted. Raises `UserError` if it can't be read."""
    try:
        return run.record() if is_run(run.path) else None
    except UserError:
        if is_run(run.path):
            raise
        return None


def stored_record(sweep: Sweep, run: Run) -> RunRecord | None:
    """The record of one of its runs; None if it has none, or see `problem`."""
    with contextlib.suppress(OSError, UserError):
        return None if problem_of(sweep, run) else _record_if_begun(run)
    return None


def set_aside(sweep: Sweep, run: Run) -> str:
    """Move what a try of a run has left, so that another one can have its place. Returns where in the sweep's
    folder it is; empty if there was nothing. Raises `UserError` if the run trains or can't be moved."""
    if not os.path.lexists(run.path):
        return ""
    try:
        (earlier := sweep.path / _EARLIER_FOLDER).mkdir(exist_ok=True)
        if not is_own(earlier):
            raise UserError(f"{earlier}: must be a folder of your own")
        with run.lock():
            places = (earlier / f"{run.name}-{number}" for number in itertools.count(1))
            place = next(each for each in places if not os.path.lexists(each))
            run.path.rename(place)
            marks.forget(run.path)
    except OSError as error:
        raise UserError(f"{run.path}: can't be moved to {_EARLIER_FOLDER} ({error.strerror or error})") from None
    sweep.note("moved", run, reason=(folder := f"{_EARLIER_FOLDER}/{place.name}"))
    return folder


def what_it_waits_for(sweep: Sweep) -> str:
    """Return what its queue waits for to start more runs; empty if for nothing, or if it has none."""
    with contextlib.suppress(OSError):
        if sweep.queue_pid():
            return read_bounded(sweep.path / LOCK_FILE, LOCK_BYTES)[PID_BYTES:].decode("utf-8", "ignore").strip()
    return ""


@dataclass
class EndedTry:
    """A try that was stopped or has failed."""

    event: Event
    reason: str
    folder: str = ""
    """Where in the sweep's folder its files are, if another try has its place."""


@dataclass
class History:
    """What has happened to a run."""

    tries: int = 0
    """How often it was begun, or could not be, since it was last resumed."""
    is_open: bool = False
    """Whether it was begun, and its end is not noted yet."""
    is_pruned: bool = False
    last: Event | None = None
    """What has happened to it last, other than `pruned` and `moved`."""
    ended: list[EndedTry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        event = entry.event
        if event == "pruned":
            self.is_pruned = True
            return
        if event == "moved":
            if not self.ended or self.ended[-1].folder:
                self.ended.append(EndedTry("lost", "its end was not noted"))
            self.ended[-1].folder = entry.reason
            return
        if event == "begun":
            self.tries += 1
        elif event == "resumed":
            self.tries = 0
        elif event in ("failed", "lost", "refused"):
            self.tries = TRIES if event == "refused" else self.tries + entry.counts - self.is_open
        if event in ("stopped", "failed", "lost", "refused"):
            self.ended.append(EndedTry(event, entry.reason))
        self.is_open = event == "begun" or (event == "resumed" and self.is_open)
        if not (event == "stopped" and self.last == "resumed"):  # then it had been stopped before
            self.last = event


class Journal:
    """The journal of the sweep in a folder; `before`: what was noted by earlier versions, elsewhere."""

    def __init__(self, folder: Path, before: Iterable[Entry] = ()) -> None:
        self._path = folder / JOURNAL_FILE
        self._before = tuple(before)
        self._begin()

    def _begin(self) -> None:
        self._read_to = 0
        self._histories = defaultdict[str, History](History)
        self.is_stopping = False
        """Whether the queue was told to stop, and none has begun since."""
        for entry in self._before:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        if entry.event in ("started", "stopping"):
            self.is_stopping = entry.event == "stopping"
            return
        for name in entry.runs:
            if name in self._histories or len(self._histories) < 2 * MOST_RUNS:  # not all need be runs of the sweep
                self._histories[name].add(entry)

    def read(self) -> Self:
        """Take what is new. Raises `UserError` if it can't be read."""
        try:
            with open_regular(self._path, os.O_RDONLY) as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_BYTES:
                    raise OSError(errno.EFBIG, f"must have at most {MAX_BYTES:,} bytes")
                if size < self._read_to:  # another file
                    self._begin()
                file.seek(self._read_to)
                new = file.read(MAX_BYTES)
        except FileNotFoundError:
            return self
        except OSError as error:
            raise UserError(f"{self._path}: can't be read ({error.strerror or error})") from None
        *lines, rest = new.split(b"\n")
        self._read_to += len(new) - len(rest)
        for line in lines:
            with contextlib.suppress(ValueError):
                self._add(parsed_json(line, Entry))
        return self

    def of(self, run: str) -> History:
        """The history of a run, by its name."""
        return self._histories[run]


def journal_of(sweep: Sweep, plan: SweepPlan) -> Journal:
    """Return what has happened to its runs. Raises `UserError` if the journal can't be read."""
    before = [Entry("pruned", 0.0, plan.pruned)]
    with contextlib.suppress(OSError, ValueError):
        for name, tries in read_json(sweep.path / _TRIES_FILE, dict[str, Count], MAX_BYTES).items():
            before += [Entry("begun", 0.0, (name,))] * min(tries, TRIES) or [Entry("resumed", 0.0, (name,))]
    return Journal(sweep.path, before).read()


def is_stopping(sweep: Sweep, plan: SweepPlan) -> bool:
    """Return whether all its runs are being stopped."""
    return sweep.queue_pid() is not None and journal_of(sweep, plan).is_stopping
