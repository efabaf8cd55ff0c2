"""Creates and lists a user's runs.

A per-user registry (`$XDG_STATE_HOME/mario-tui/runs`) stores the paths of runs, so that they are found from any folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from engine.config.reading import Description, ReportedLoop
from engine.config.run_config import RunConfig
from engine.config.runners import ACCEPTED, is_run_name
from engine.errors import RemovedError, UserError
from engine.protocol.messages import State
from engine.runs import marks, policies
from engine.runs.marks import RECORD_FILE, is_run, utf8_path
from engine.runs.run import ACTIVE, CONFIG_FILE, LOOP_FILE, Run, RunRecord, initial_record
from engine.runtime.files import is_same, is_users, misses_file_of, read_bounded, write_atomically

_CLOCK_TOLERANCE_S = 24 * 3600.0
_MAX_PATH_BYTES = 2**16
_MAY_CHANGE: tuple[State, ...] = (*ACTIVE, "lost", "damaged")
"""States that depend on more than the record's file and its folder."""
SWEEP_FILE = "sweep.json"
"""Is in the folder of a sweep, in which the folders of its runs lie."""
LATEST = "latest"
"""Stands for the newest run."""


def create_run(config: Description, name: str | None = None, *, numbered: bool = False) -> Run:
    """Create and register the folder of a new run, named after its game and the time if it has no `name`. With
    `numbered`, a number follows a name that is taken.

    Raises `UserError` if the folder can't be written or its path is not valid UTF-8; `RemovedError` if somebody removes
    it meanwhile.
    """
    task = re.sub(r"[^\w,.-]", "-", config.task_label, flags=re.ASCII)  # of an installed game it may be any text
    game = f"{config.game}-{task}-{time.strftime('%Y%m%d-%H%M%S')}"
    first = name or game
    others = (f"{first}-{n}" for n in itertools.count(2)) if numbered or name is None else ()
    parent = Path(config.run_dir)
    utf8_path(parent)  # checked before anything is created
    created: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for each in itertools.chain([first], others):
            with contextlib.suppress(FileExistsError):
                path = parent / each
                path.mkdir()
                created = path
                break
        if created is None:
            raise UserError(_is_taken(parent / first))
        run = Run(created)
        if isinstance(config, ReportedLoop):
            write_atomically(run.path / LOOP_FILE, msgspec.json.format(msgspec.json.encode(config)))
        else:
            write_atomically(run.path / CONFIG_FILE, config.to_toml().encode())
        run.write_record(initial_record(run, config, "starting", time.time()))
    except BaseException as error:
        if created is not None:
            if misses_file_of(created.resolve(), error):
                raise RemovedError(f"{created}: was removed while the run started") from None
            shutil.rmtree(created, ignore_errors=True)  # if the disk is full, leave no incomplete folder behind
        if isinstance(error, OSError):
            raise UserError(f"--run-dir: {parent}: can't be written ({error.strerror or error})") from None
        raise
    register(run)
    return run


def name_error(name: str, run_dir: str | Path | None) -> str:
    """Why a new run in that folder can't have that name; empty if it can. None: it may be taken, and is numbered."""
    if not is_run_name(name):
        return f"must be {ACCEPTED}, got {name!r}"
    if name == LATEST or policies.has_card(name):
        return f"must not be {LATEST}, or the name of a policy that comes with the package, got {name!r}"
    path = None if run_dir is None else Path(run_dir) / name
    return "" if path is None or not os.path.lexists(path) else _is_taken(path)


def _is_taken(path: Path) -> str:
    return f"{path} exists already; choose another name, or --resume {path.name}"


def discard_run(run: Run) -> None:
    """Remove a run's folder with everything in it, such as that of one that could not be started. Raises `UserError` if
    it is running or can't be removed."""
    if not is_run(run.path):
        raise UserError(f"{run.path}: not a run of mario-tui")
    try:
        with run.lock():
            folder = run.status()
            (run.path / RECORD_FILE).unlink()  # first, so that after a crash the remains are no run
            shutil.rmtree(run.path, ignore_errors=True)
        if folder is not None and is_same(run.path, folder):  # NFS keeps a lock file that is open
            shutil.rmtree(run.path)
    except OSError as error:
        raise UserError(f"{run.path}: can't be removed ({error.strerror or error})") from None
    marks.forget(run.path)


def list_runs(run_dir: str | Path | None = None) -> list[Run]:
    """Runs of this user, newest first: those in `run_dir` and in the sweeps there; without it, those in `checkpoints`
    of the working directory and all registered ones. Raises `UserError` if they can't be listed."""
    return [run for run, _ in list_records(run_dir)]


class KnownRecords:
    """The records of a list that is read again and again. A run whose files are as they were is not read again, unless
    it was active, lost or damaged: that can change without them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], Run, RunRecord]] = {}

    def read(self, folders: Iterable[str]) -> list[tuple[Run, RunRecord]]:
        """The runs among these folders that belong to this user, and their records. Others are forgotten."""
        before, self._known = self._known, {}
        for folder in folders:
            with contextlib.suppress(OSError, UserError):  # no run, or deleted in the meantime
                of_folder, of_record = os.lstat(folder), os.lstat(f"{folder}/{RECORD_FILE}")
                if not (is_users(of_folder) and is_users(of_record)):
                    continue
                stamp = of_folder.st_ino, of_folder.st_mtime_ns, *_stamp(of_record)  # the folder's: for checkpoints
                known = before.get(folder)
                if known is None or known[0] != stamp or known[2].state in _MAY_CHANGE:
                    run = Run(Path(folder)) if known is None else known[1]
                    known = stamp, run, run.record()
                self._known[folder] = known
        return [(run, record) for _, run, record in self._known.values()]


def list_records(run_dir: str | Path | None = None, known: KnownRecords | None = None) -> list[tuple[Run, RunRecord]]:
    """The same runs as `list_runs`, each with its record. `known`: those of the last list; they must not be changed."""
    folder = Path(run_dir or RunConfig.run_dir)
    try:
        found = set(_inside(folder))
        found.update(*(_inside(each) for each in list(found) if os.path.lexists(f"{each}/{SWEEP_FILE}")))
        if run_dir is None:
            found |= _registered()
    except OSError as error:  # a dead mount, a working directory that was deleted
        raise UserError(f"{folder}: the runs can't be listed ({error.strerror or error})") from None
    listed = (known or KnownRecords()).read(found)
    return sorted(listed, key=lambda each: (_plausible_date(each[1].created_at), each[0].path), reverse=True)


def _inside(folder: str | Path) -> Iterator[str]:
    """The resolved paths of the folders in a folder, which may be missing."""
    if not Path(folder).is_dir():
        return
    with contextlib.suppress(PermissionError), os.scandir(Path(folder).resolve()) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield os.path.realpath(entry.path)
            elif entry.is_dir():
                yield entry.path


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Differs once a file has been replaced or written."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _plausible_date(created_at: float) -> float:
    """A run's date, or 0 if it is implausible (in the future), which sorts the run behind all others."""
    return created_at if 0 < created_at < time.time() + _CLOCK_TOLERANCE_S else 0.0


def _registered() -> set[str]:
    """Folders of the registered runs. Entries of removed runs are deleted; entries on an unmounted disk are kept."""
    found = set()
    entries = list[Path]()
    with contextlib.suppress(OSError):
        entries += marks.marks("runs")
    for entry in entries:
        with contextlib.suppress(OSError, ValueError):  # another process may have removed it meanwhile
            path = _noted(entry, _stamp(entry.stat()))
            if not path.is_absolute():
                continue
            if is_run(path):
                found.add(str(path))
            elif path.parent.is_dir() and any(path.parent.iterdir()):  # a mount point without its disk is empty
                marks.forget(path)
                entry.unlink(missing_ok=True)  # whatever its name
    return found


@lru_cache(2**14)
def _noted(entry: Path, stamp: tuple[int, int, int]) -> Path:
    """The path that an entry of the registry, as it is now, holds."""
    return Path(read_bounded(entry, _MAX_PATH_BYTES).decode("utf-8"))


def register(run: Run) -> None:
    """Note that this user has the run, which is found in its own folder even if no note can be written."""
    with contextlib.suppress(OSError):
        marks.write("runs", run.path, str(run.path).encode())
