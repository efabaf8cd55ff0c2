"""Creates, lists and deletes a user's runs.

A per-user registry (`$XDG_STATE_HOME/mario-tui/runs`) stores the paths of runs, so that they are found from any folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import time
from pathlib import Path

import msgspec

from engine.config.reported_loop import Description, ReportedLoop
from engine.config.run_config import RunConfig
from engine.config.run_name import ACCEPTED, is_run_name
from engine.errors import UserError
from engine.runs import policies
from engine.runs.run import (
    CONFIG_FILE,
    LOOP_FILE,
    RECORD_FILE,
    Run,
    RunRecord,
    initial_record,
    is_run,
    path_digest,
    utf8_path,
)
from engine.runtime.files import is_own, read_bounded, write_atomically, write_if_possible
from engine.runtime.home import program_folder

_CLOCK_TOLERANCE_S = 24 * 3600.0
_MAX_PATH_BYTES = 2**16
SWEEP_FILE = "sweep.json"
"""Is in the folder of a sweep, in which the folders of its runs lie."""
LATEST = "latest"
"""Stands for the newest run."""


def create_run(config: Description, name: str | None = None, *, numbered: bool = False) -> Run:
    """Create and register the folder of a new run, named after its game and the time if it has no `name`. With
    `numbered`, a number follows a name that is taken.

    Raises `UserError` if the folder can't be written or its path is not valid UTF-8.
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


def delete_run(run: Run) -> None:
    """Remove a run's folder with everything in it. Raises `UserError` if it is running or can't be removed."""
    if not is_run(run.path):
        raise UserError(f"{run.path}: not a run of mario-tui")
    try:
        with run.lock():
            folder = run.identity()
            (run.path / RECORD_FILE).unlink()  # first, so that after a crash the remains are no run
            shutil.rmtree(run.path, ignore_errors=True)
        if run.identity() == folder:  # NFS keeps a lock file that is open
            shutil.rmtree(run.path)
    except OSError as error:
        raise UserError(f"{run.path}: can't be removed ({error.strerror or error})") from None
    with contextlib.suppress(OSError):  # a read-only home; the next listing removes the entry
        (_registry() / path_digest(run.path)).unlink(missing_ok=True)


def list_runs(run_dir: str | Path | None = None) -> list[Run]:
    """Runs of this user, newest first: those in `run_dir` and in the sweeps there; without it, those in `checkpoints`
    of the working directory and all registered ones. Raises `UserError` if they can't be listed."""
    return [run for run, _ in list_records(run_dir)]


def list_records(run_dir: str | Path | None = None) -> list[tuple[Run, RunRecord]]:
    """The same runs as `list_runs`, each with its record."""
    folder = Path(run_dir or RunConfig.run_dir)
    try:
        sweeps = (path.parent for path in folder.glob(f"*/{SWEEP_FILE}"))
        records = (path for each in (folder, *sweeps) for path in each.glob(f"*/{RECORD_FILE}"))
        found = {path.parent.resolve() for path in records}
        if run_dir is None:
            found |= _registered()
    except OSError as error:  # a dead mount, a working directory that was deleted
        raise UserError(f"{folder}: the runs can't be listed ({error.strerror or error})") from None
    listed = []
    for path in found:
        with contextlib.suppress(UserError):
            if is_own(path) and is_own(path / RECORD_FILE):
                listed.append((Run(path), Run(path).record()))
    return sorted(listed, key=lambda each: (_plausible_date(each[1].created_at), each[0].path), reverse=True)


def _plausible_date(created_at: float) -> float:
    """A run's date, or 0 if it is implausible (in the future), which sorts the run behind all others."""
    return created_at if 0 < created_at < time.time() + _CLOCK_TOLERANCE_S else 0.0


def _registered() -> set[Path]:
    """Folders of the registered runs. Entries of removed runs are deleted; entries on an unmounted disk are kept."""
    found = set()
    for entry in _registry().glob("[!.]*"):  # names with a dot are temporary files of `write_atomically`
        with contextlib.suppress(OSError, ValueError):  # another process may have removed it meanwhile
            path = Path(read_bounded(entry, _MAX_PATH_BYTES).decode("utf-8"))
            if not path.is_absolute():
                continue
            if is_run(path):
                found.add(path)
            elif path.parent.is_dir() and any(path.parent.iterdir()):  # a mount point without its disk is empty
                entry.unlink(missing_ok=True)
    return found


def was_created_here(path: Path) -> bool:
    """Whether this user's program has created the run of this folder: the registry, which lies outside, says so."""
    return (_registry() / path_digest(utf8_path(path))).is_file()


def _registry() -> Path:
    return program_folder("STATE") / "runs"


def register(run: Run) -> None:
    """Note that this user has the run, which is found in its own folder even if no note can be written."""
    write_if_possible(_registry() / path_digest(run.path), str(run.path).encode())
