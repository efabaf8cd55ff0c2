"""A sweep's folder `<run-dir>/<sweep>/`: which runs it has, with which options, and what has happened to them.

Its runs are ordinary ones, whose folders lie in it. A process of its own, the queue, starts one after the other; it
holds a lock on `sweep.lock` as long as it lives. `sweep.json` names options, and options may name code, so it is only
used where its digest was noted in the user's state folder when it was written: a copied sweep runs nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
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
from engine.runs.marks import utf8_path
from engine.runs.registry import SWEEP_FILE
from engine.runs.run import Annotation, Run
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

LOG_FILE, LOCK_FILE, PLAN_LOCK_FILE = "sweep.log", "sweep.lock", "plan.lock"
_QUEUES = {"mario_tui.extras.sweeps.queue", "mario_tui.sweep_queue"}
"""Modules that are the queue; the latter in earlier versions."""
PID_BYTES, LOCK_BYTES = 20, 512
"""Of the lock file: in it are the queue's process ID and what it waits for."""
MAX_BYTES = 2**24
JOURNAL_FILE = "journal.jsonl"
MOST_RUNS = 2000
_LONGEST = 1000
"""Characters of a reason."""
Event = Literal[
    "begun", "finished", "stopped", "failed", "lost", "refused", "pruned", "resumed", "moved", "deleted", "started",
    "stopping",
]  # fmt: skip
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
Metric = Literal["best", "last"]
"""What settings are compared by: the best evaluations of their runs, or their last episodes."""
_Scalar = str | int | float | bool | None
_Values = dict[str, _Scalar]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal: what has happened to runs. By event:

    - `begun`: a host was started
    - `finished`, `stopped`, `failed`: it has ended; `reason` says why, and who stopped it
    - `lost`: it ended with the node or the process that it was on
    - `refused`: it can't be started, and is not tried again
    - `pruned`: its setting was given up
    - `resumed`: it is to be begun, however often it was tried before
    - `moved`: its last try has left files, which are now in the folder `reason` of the sweep
    - `deleted`: the user has deleted it
    - `started`, `stopping`: the queue of the sweep
    """

    event: Event
    at: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    """Unix time."""
    runs: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MOST_RUNS)] = ()
    """Names; none if it is about the sweep."""
    reason: _Text = ""
    counts: bool = True
    """Of `lost`: whether that was a try. It was not if a whole node is gone."""


class Member(msgspec.Struct, frozen=True):
    """A run of a sweep: the values of what varies, and its seed."""

    settings: _Values
    seed: Count


class Search(msgspec.Struct, frozen=True):
    """Settings that are chosen one after the other, from what earlier ones have reached."""

    vary: tuple[str, ...]
    """`OPTION=VALUES`, as typed."""
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_RUNS)]
    seeds: tuple[Count, ...]
    seed: Count
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
    prune_after: Count | None = None
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
            return read_bounded(path, MAX_BYTES)
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

    def note(self, event: Event, *runs: Run, reason: str = "", counts: bool = True) -> None:
        """Add to the journal. Raises `UserError` if it can't be written."""
        note(self.path, event, *(run.name for run in runs), reason=reason, counts=counts)

    def queue_pid(self) -> int | None:
        """The process of its queue; None if it has none. 0 if it is about to tell."""
        try:
            with open_regular(self.path / LOCK_FILE, os.O_RDONLY) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid = int(file.read(PID_BYTES) or 0)
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

    @contextlib.contextmanager
    def lock(self) -> Iterator[Callable[[str], None]]:
        """Be its queue, and tell others what that waits for: the file keeps its size, so that a full disk takes it.
        Raises `UserError` if it has one."""
        if self.queue_pid() not in (None, os.getpid()):
            raise self._has_queue()
        with self._locked(LOCK_FILE, lock_exclusively) as file:

            def tell(waits_for: str) -> None:
                content = f"{os.getpid():<{PID_BYTES}}{waits_for}".encode()
                os.pwrite(file.fileno(), content[:LOCK_BYTES].ljust(LOCK_BYTES), 0)

            os.truncate(file.fileno(), LOCK_BYTES)  # it may be somebody else's work
            tell("")
            yield tell

    def _has_queue(self) -> UserError:
        return UserError(f"{self.name}: has a queue already")

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


def note(folder: Path, event: Event, *runs: str, reason: str = "", counts: bool = True) -> None:
    """Add a line to the journal of the sweep in `folder`, as only one process at a time can. Raises `UserError` if it
    can't be written."""
    entry = Entry(event, time.time(), runs, reason[:_LONGEST], counts)
    with _written(folder / JOURNAL_FILE), open_lock(folder / JOURNAL_FILE, os.O_APPEND) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        is_cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        line = b"\n" * is_cut_off + msgspec.json.encode(entry) + b"\n"
        if size + len(line) > MAX_BYTES:
            raise OSError(errno.EFBIG, "it is full")
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


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
                mark = read_json(entry, _Mark, MAX_BYTES)
                sweep = Sweep(Path(mark.path))
                is_wanted = run_dir is None or sweep.path.parent == here.resolve()
                if is_wanted and (sweep.path / SWEEP_FILE).is_file():
                    found[sweep.path] = True, mark.created_at or (sweep.path / SWEEP_FILE).stat().st_mtime, sweep
    return [sweep for *_, sweep in sorted(found.values(), key=lambda each: each[:2], reverse=True)]


def setting_key(settings: Mapping[str, Any]) -> str:
    """The same for the same values, in whichever order they are given."""
    return json.dumps(settings, sort_keys=True)
