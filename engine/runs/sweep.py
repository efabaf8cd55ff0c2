"""A sweep's folder `<run-dir>/<sweep>/`: which runs it has, with which options, and how often each was tried.

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
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import psutil

from engine.config.run_config import RunConfig
from engine.config.run_name import is_run_name
from engine.errors import UserError
from engine.runs.annotation import Annotation
from engine.runs.registry import SWEEP_FILE, name_error
from engine.runs.run import Run, path_digest, utf8_path
from engine.runtime.files import is_own, lock_exclusively, open_regular, read_bounded, write_atomically
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json

TRIES_FILE, LOG_FILE = "tries.json", "sweep.log"
LOCK_FILE, PLAN_LOCK_FILE = "sweep.lock", "plan.lock"
MOST_RUNS = 2000
TRIES = 2
"""How often a run is begun, the first time included, before it counts as failed."""
STARTUP_SETTINGS = 4
"""Settings that have a finished run before any is pruned. Optuna's default is 5, more than small grids can spare."""
NOT_OWN = "was not made here by you, so it can only be looked at"
"""Of a sweep that was copied, moved, or changed by something else than this program."""
_MAX_BYTES = 2**24
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
    """Names of the runs that were given up for that, before they are stopped."""
    name: str = ""
    """The sweep's name when it was made, with which those of its runs begin: the folder may be renamed later."""

    @property
    def settings(self) -> list[_Values]:
        """The different settings of its runs, in order."""
        return list({setting_key(member.settings): member.settings for member in self.members}.values())

    @property
    def is_searching(self) -> bool:
        """Whether a search has settings left to choose."""
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
        """The run of member `number`, from 0. Raises `UserError` if there is a link in its place."""
        path = self.path / f"{self._first_name[:90]}-{number + 1:03}"
        if path.is_symlink():
            raise UserError(f"{path}: is a link; the runs of a sweep lie in its folder")
        return Run(path)

    def plan(self) -> SweepPlan:
        """What the file says, to be shown. Raises `UserError` if it can't be read."""
        return self._decoded(self._content())

    @property
    def is_own(self) -> bool:
        """Whether this user's program has made it here; otherwise it can only be looked at."""
        try:
            self.own_plan()
        except UserError:
            return False
        return True

    def own_plan(self) -> SweepPlan:
        """What the file says, to be used. Raises `UserError` too unless this user's program has written it as it is."""
        content = self._content()
        with contextlib.suppress(OSError, ValueError):
            if hashlib.sha256(content).hexdigest() in self._mark().digests:
                return self._decoded(content)
        raise UserError(f"{self.path}: {NOT_OWN}")

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
            _marks().mkdir(parents=True, exist_ok=True)
            write_atomically(_marks() / path_digest(self.path), msgspec.json.encode(mark))
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
            return msgspec.json.decode(content, type=SweepPlan)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.path / SWEEP_FILE}: can't be read ({error})") from None

    def _mark(self) -> _Mark:
        return read_json(_marks() / path_digest(self.path), _Mark, _MAX_BYTES)

    def tries(self) -> dict[str, int]:
        """How often each run was begun, by name; runs that were never begun are missing."""
        try:
            return read_json(self.path / TRIES_FILE, dict[str, _Count], _MAX_BYTES)
        except (OSError, ValueError):  # new, or damaged: then no run that somebody has stopped is begun again
            return {}

    def write_tries(self, tries: dict[str, int]) -> None:
        """Raises `UserError` if they can't be written."""
        with _written(self.path):
            write_atomically(self.path / TRIES_FILE, msgspec.json.encode(tries))

    def queue_pid(self) -> int | None:
        """The process of its queue; None if it has none. 0 if it is about to tell."""
        try:
            with open_regular(self.path / LOCK_FILE, os.O_RDONLY) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid = int(file.read(20) or 0)
                    process = psutil.Process(pid) if pid > 0 else None
                    ours = process is not None and "mario_tui.sweep_queue" in process.cmdline()
                    return pid if ours else 0
        except (OSError, ValueError, psutil.Error):
            pass
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be its queue. Raises `UserError` if it has one."""
        with self._locked(LOCK_FILE, lock_exclusively) as file:
            os.truncate(file.fileno(), 0)
            os.pwrite(file.fileno(), f"{os.getpid()}".encode(), 0)
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, lock: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
        with open_regular(self.path / name, os.O_RDWR | os.O_CREAT) as file:
            os.fchmod(file.fileno(), 0o600)  # any user who can open the file could lock it
            try:
                lock(file)
            except BlockingIOError:
                raise UserError(f"{self.name}: has a queue already") from None
            except OSError as error:
                raise UserError(f"{self.path}: can't be locked, which a sweep needs ({error.strerror})") from None
            yield file


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Raises `UserError` for what the block can't write; `folder` is named if the system names no file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or folder}: can't be written ({error.strerror or error})") from None


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


def list_sweeps() -> list[Sweep]:
    """The sweeps that this user has made, newest first; then others in `checkpoints` of the working directory."""
    found = dict[Path, tuple[bool, float, Sweep]]()
    here = Path(RunConfig.run_dir)
    with contextlib.suppress(OSError):
        for file in here.glob(f"*/{SWEEP_FILE}"):
            with contextlib.suppress(OSError, UserError):
                if is_own(file.parent) and is_own(file):
                    sweep = Sweep(file.parent)
                    found[sweep.path] = False, file.stat().st_mtime, sweep
    with contextlib.suppress(OSError):
        for entry in _marks().glob("[!.]*"):  # names with a dot are temporary files of `write_atomically`
            with contextlib.suppress(OSError, ValueError, UserError):
                mark = read_json(entry, _Mark, _MAX_BYTES)
                if (sweep := Sweep(Path(mark.path))).path.joinpath(SWEEP_FILE).is_file():
                    found[sweep.path] = True, mark.created_at or (sweep.path / SWEEP_FILE).stat().st_mtime, sweep
    return [sweep for *_, sweep in sorted(found.values(), key=lambda each: each[:2], reverse=True)]


def setting_key(settings: Mapping[str, Any]) -> str:
    """The same for the same values, in whichever order they are given."""
    return json.dumps(settings, sort_keys=True)


def _marks() -> Path:
    return program_folder("STATE") / "sweeps"
