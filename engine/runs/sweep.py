"""A sweep's folder `<run-dir>/<sweep>/`: which runs it has, with which options, and what has happened to them.

Its runs are ordinary ones, whose folders lie in it. A process of its own, the queue, starts one after the other; it
holds a lock on `sweep.lock` as long as it lives. `sweep.json` names options, and options may name code, so it is only
used where its digest was noted in the user's state folder when it was written: a copied sweep runs nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import psutil

from engine.config.run_config import RunConfig
from engine.config.runners import is_run_name
from engine.errors import ScarceError, UserError
from engine.runs import marks
from engine.runs.marks import user_name, utf8_path
from engine.runs.registry import SWEEP_FILE, name_error
from engine.runs.run import Annotation, Run, RunRecord, record_if_begun
from engine.runs.sweep_journal import MOST_RUNS, TRIES, Entry, Event, Journal, note
from engine.runtime.files import (
    is_full,
    is_own,
    lock_exclusively,
    open_lock,
    open_regular,
    read_bounded,
    write_atomically,
)
from engine.runtime.formats import parsed_json, read_json

LOG_FILE, EARLIER_FOLDER = "sweep.log", "earlier"
"""The latter holds what tries have left whose place another try has."""
LOCK_FILE, PLAN_LOCK_FILE = "sweep.lock", "plan.lock"
_QUEUES = {"mario_tui.extras.sweeps.queue", "mario_tui.sweep_queue"}
"""Modules that are the queue; the latter in earlier versions."""
_PID_BYTES, _LOCK_BYTES = 20, 512
"""Of the lock file: in it are the queue's process ID and what it waits for."""
STARTUP_SETTINGS = 4
"""Settings that have a finished run before any is pruned. Optuna's default is 5, more than small grids can spare."""
_TRIES_FILE = "tries.json"
"""In which earlier versions have counted the tries of each run; 0 for one that was resumed."""
_MAX_BYTES = 2**24
_MAX_RECORD_BYTES = 2**16
"""Of the record of a run: whoever shows a sweep holds those of all."""
Metric = Literal["best", "last"]
"""What settings are compared by: the best evaluations of their runs, or their last episodes."""
_Scalar = str | int | float | bool | None
_Values = dict[str, _Scalar]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class Member(msgspec.Struct, frozen=True):
    """A run of a sweep: the values of what varies, and its seed."""

    settings: _Values
    seed: _Count


class Search(msgspec.Struct, frozen=True):
    """Settings that are chosen one after the other, from what earlier ones have reached."""

    vary: tuple[str, ...]
    """`OPTION=VALUES`, as typed."""
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_RUNS)]
    seeds: tuple[_Count, ...]
    seed: _Count
    metric: Metric


class SweepPlan(msgspec.Struct, frozen=True):
    """Contents of `sweep.json`."""

    options: _Values
    """What all runs have in common, as it was given."""
    jobs: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None
    """Runs that train at the same time; None: as many as there is room for."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None
    """Cores that each run may use; None: as its option says."""
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=MOST_RUNS)]
    search: Search | None = None
    annotation: Annotation = Annotation()
    """Tags and note of all runs; the name of the sweep is another tag."""
    ray: str = "none"
    """The cluster whose nodes the runs are on, as `--ray` names it."""
    prune_after: _Count | None = None
    """Environment steps from which on settings that are worse than the others are stopped; None: none is."""
    pruned: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_RUNS)] = ()
    """Names of the runs that an earlier version has given up for that."""
    name: str = ""
    """The sweep's name when it was made, with which those of its runs begin: the folder may be renamed later."""

    @property
    def settings(self) -> list[_Values]:
        """The different settings of its runs, in order."""
        return list({setting_key(member.settings): member.settings for member in self.members}.values())

    @property
    def is_searching(self) -> bool:
        """Return whether a search has settings left to choose."""
        return self.search is not None and len(self.settings) < self.search.count

    @property
    def planned(self) -> int:
        """Number of its runs, with those that a search has yet to choose."""
        return len(self.members) if self.search is None else self.search.count * len(self.search.seeds)

    def values(self, member: Member) -> dict[str, Any]:
        """All options that were given for a run."""
        threads = {} if self.threads is None else {"threads": self.threads}
        return {**self.options, **threads, **member.settings, "seed": member.seed}


class Sweep:
    """The folder of a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = utf8_path(path)

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def _first_name(self) -> str:
        with contextlib.suppress(UserError):
            if is_run_name(name := self.plan().name):
                return name
        return self.name  # the plan is of an earlier version

    @property
    def log_path(self) -> Path:
        return self.path / LOG_FILE

    def run(self, number: int) -> Run:
        """The run of member `number`, from 0; `problem` tells whether what has its place is the sweep's."""
        run = Run(self.path)
        run.path = self.path / f"{self._first_name[:90]}-{number + 1:03}"  # not resolved: there may be a link
        return run

    def problem(self, run: Run) -> str:
        """Why what has the place of one of its runs can't be used; empty if it can, or if there is nothing."""
        owners = set[int]()
        for path in (self.path, run.path, run.record_path):
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

    def record(self, run: Run) -> RunRecord | None:
        """The record of one of its runs; None if it has none, or see `problem`."""
        with contextlib.suppress(OSError, UserError):
            return None if self.problem(run) else record_if_begun(run)
        return None

    def plan(self) -> SweepPlan:
        """Return what the file says, to be shown. Raises `UserError` if it can't be read."""
        return self._decoded(self._content())

    @property
    def is_own(self) -> bool:
        """Return whether this user's program has made it here; otherwise it can only be looked at."""
        try:
            self.own_plan()
        except UserError:
            return False
        return True

    def own_plan(self) -> SweepPlan:
        """Return what the file says, to be used. Raises `UserError` too unless this user's program has written it as it
        is."""
        content = self._content()
        with contextlib.suppress(OSError, ValueError):
            if hashlib.sha256(content).hexdigest() in self._mark().digests:
                return self._decoded(content)
        raise UserError(f"{self.path}: {why_not_own()}")

    @contextlib.contextmanager
    def changed_plan(self) -> Iterator[tuple[SweepPlan, Callable[[SweepPlan], None]]]:
        """The plan, and what writes another one; nobody else changes it meanwhile."""
        with self._locked(PLAN_LOCK_FILE, lambda file: fcntl.flock(file, fcntl.LOCK_EX)):
            yield self.own_plan(), self.write_plan

    def write_plan(self, plan: SweepPlan) -> None:
        """Write the plan, and note that this user has. A kill or a full disk in between leaves the old plan or the
        new one usable. Raises `UserError` if something can't be written."""
        content = msgspec.json.format(msgspec.json.encode(plan))
        mark = _Mark(str(self.path), [hashlib.sha256(content).hexdigest()], time.time())
        with contextlib.suppress(OSError, ValueError, UserError):
            now, before = hashlib.sha256(self._content()).hexdigest(), self._mark()
            mark.created_at = before.created_at
            mark.digests += {now}.intersection(before.digests)
        with _written(self.path):
            marks.write("sweeps", self.path, msgspec.json.encode(mark))
            write_atomically(self.path / SWEEP_FILE, content)

    def _content(self) -> bytes:
        path = self.path / SWEEP_FILE
        try:
            return read_bounded(path, _MAX_BYTES)
        except FileNotFoundError:
            why = "" if self.path.is_dir() else " (no such folder; was it moved or removed?)"
            raise UserError(f"{self.path}: not a sweep of mario-tui{why}") from None
        except OSError as error:
            raise UserError(f"{path}: can't be read ({error.strerror or error})") from None

    def _decoded(self, content: bytes) -> SweepPlan:
        try:
            return parsed_json(content, SweepPlan)
        except ValueError as error:
            raise UserError(f"{self.path / SWEEP_FILE}: can't be read ({error})") from None

    def _mark(self) -> _Mark:
        return parsed_json(marks.read("sweeps", self.path), _Mark)

    def journal(self, plan: SweepPlan) -> Journal:
        """Return what has happened to its runs. Raises `UserError` if the journal can't be read."""
        before = [Entry("pruned", 0.0, plan.pruned)]
        with contextlib.suppress(OSError, ValueError):
            for name, tries in read_json(self.path / _TRIES_FILE, dict[str, _Count], _MAX_BYTES).items():
                before += [Entry("begun", 0.0, (name,))] * min(tries, TRIES) or [Entry("resumed", 0.0, (name,))]
        return Journal(self.path, before).read()

    def note(self, event: Event, *runs: Run, reason: str = "", counts: bool = True) -> None:
        """Add to the journal. Raises `UserError` if it can't be written."""
        note(self.path, event, *(run.name for run in runs), reason=reason, counts=counts)

    def set_aside(self, run: Run) -> str:
        """Move what a try of a run has left, so that another one can have its place. Returns where in the sweep's
        folder it is; empty if there was nothing. Raises `UserError` if the run trains or can't be moved."""
        if not os.path.lexists(run.path):
            return ""
        try:
            (earlier := self.path / EARLIER_FOLDER).mkdir(exist_ok=True)
            if not is_own(earlier):
                raise UserError(f"{earlier}: must be a folder of your own")
            with run.lock():
                places = (earlier / f"{run.name}-{number}" for number in itertools.count(1))
                place = next(each for each in places if not os.path.lexists(each))
                run.path.rename(place)
                marks.forget(run.path)
        except OSError as error:
            raise UserError(f"{run.path}: can't be moved to {EARLIER_FOLDER} ({error.strerror or error})") from None
        self.note("moved", run, reason=(folder := f"{EARLIER_FOLDER}/{place.name}"))
        return folder

    def queue_pid(self) -> int | None:
        """The process of its queue; None if it has none. 0 if it is about to tell."""
        try:
            with open_regular(self.path / LOCK_FILE, os.O_RDONLY) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid = int(file.read(_PID_BYTES) or 0)
                    process = psutil.Process(pid) if pid > 0 else None
                    ours = process is not None and _is_queue(process)
                    return pid if ours else 0
        except FileNotFoundError:
            return self._pid_without_lock()
        except (OSError, ValueError, psutil.Error):
            pass
        return None

    def _pid_without_lock(self) -> int | None:
        """The process of a queue whose lock file somebody has removed: it works in the sweep's folder."""
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if Path(process.cwd()) == self.path and _is_queue(process):
                    return process.pid
        return None

    def create_lock(self) -> None:
        """Create what is locked: without it, each of two queues that start at the same time would find the other."""
        open_lock(self.path / LOCK_FILE).close()

    @property
    def waits_for(self) -> str:
        """Return what its queue waits for to start more runs; empty if for nothing, or if it has none."""
        with contextlib.suppress(OSError):
            if self.queue_pid():
                return read_bounded(self.path / LOCK_FILE, _LOCK_BYTES)[_PID_BYTES:].decode("utf-8", "ignore").strip()
        return ""

    @contextlib.contextmanager
    def lock(self) -> Iterator[Callable[[str], None]]:
        """Be its queue, and tell others what that waits for: the file keeps its size, so that a full disk takes it.
        Raises `UserError` if it has one."""
        if self.queue_pid() not in (None, os.getpid()):
            raise self._has_queue()
        with self._locked(LOCK_FILE, lock_exclusively) as file:

            def tell(waits_for: str) -> None:
                content = f"{os.getpid():<{_PID_BYTES}}{waits_for}".encode()
                os.pwrite(file.fileno(), content[:_LOCK_BYTES].ljust(_LOCK_BYTES), 0)

            os.truncate(file.fileno(), _LOCK_BYTES)  # it may be somebody else's work
            tell("")
            yield tell

    def _has_queue(self) -> UserError:
        return UserError(f"{self.name}: has a queue already")

    def is_stopping(self, plan: SweepPlan) -> bool:
        """Return whether all its runs are being stopped."""
        return self.queue_pid() is not None and self.journal(plan).is_stopping

    @contextlib.contextmanager
    def _locked(self, name: str, lock: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
        with open_lock(self.path / name) as file:
            try:
                lock(file)
            except BlockingIOError:
                raise self._has_queue() from None
            except OSError as error:
                raise UserError(f"{self.path}: can't be locked, which a sweep needs ({error.strerror})") from None
            yield file


def _is_queue(process: psutil.Process) -> bool:
    return not _QUEUES.isdisjoint(process.cmdline())


def why_not_own() -> str:
    """Of a sweep that was copied, moved, or changed by something else than this program; or nobody can tell."""
    return f"{marks.why_not_own()}, so it can only be looked at"


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Raises `UserError` for what the block can't write; `folder` is named if the system names no file."""
    try:
        yield
    except OSError as error:
        kind = ScarceError if is_full(error) else UserError
        raise kind(f"{error.filename or folder}: can't be written ({error.strerror or error})") from None


class _Mark(msgspec.Struct):
    path: str
    digests: list[str]
    """SHA-256 of the plan, and of the one that it replaces."""
    created_at: float = 0.0
    """Of the sweep; marks of earlier versions have none."""


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


def list_sweeps(run_dir: str | Path | None = None) -> list[Sweep]:
    """The sweeps that this user has made, newest first; then others in `checkpoints` of the working directory. With
    `run_dir`, only those in that folder."""
    found = dict[Path, tuple[bool, float, Sweep]]()
    here = Path(run_dir or RunConfig.run_dir)
    with contextlib.suppress(OSError):
        for file in here.glob(f"*/{SWEEP_FILE}"):
            with contextlib.suppress(OSError, UserError):
                if is_own(file.parent) and is_own(file):
                    sweep = Sweep(file.parent)
                    found[sweep.path] = False, file.stat().st_mtime, sweep
    with contextlib.suppress(OSError):
        for entry in marks.marks("sweeps"):
            with contextlib.suppress(OSError, ValueError, UserError):
                mark = read_json(entry, _Mark, _MAX_BYTES)
                sweep = Sweep(Path(mark.path))
                is_wanted = run_dir is None or sweep.path.parent == here.resolve()
                if is_wanted and (sweep.path / SWEEP_FILE).is_file():
                    found[sweep.path] = True, mark.created_at or (sweep.path / SWEEP_FILE).stat().st_mtime, sweep
    return [sweep for *_, sweep in sorted(found.values(), key=lambda each: each[:2], reverse=True)]


def setting_key(settings: Mapping[str, Any]) -> str:
    """The same for the same values, in whichever order they are given."""
    return json.dumps(settings, sort_keys=True)
