"""A user's runs: made, found, listed, deleted.

A per-user registry (`$XDG_STATE_HOME/mario-tui/runs`) remembers where runs are, so that they are found from any folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from pathlib import Path

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runs.run import CONFIG_FILE, RECORD_FILE, Run, initial_record, path_digest
from engine.runtime.files import is_own, read_bounded

_CLOCK_MAY_DIFFER_S = 24 * 3600.0
_MAX_PATH_BYTES = 2**16


def create_run(config: RunConfig) -> Run:
    """Make the folder of a new run and remember it. Raises `UserError` if the folder can't be written."""
    game = f"{config.game}-{config.board or config.stage}"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    parent = Path(config.run_dir)
    made: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            with contextlib.suppress(FileExistsError):
                path = parent / f"{game}-{stamp}{suffix}"
                path.mkdir()
                made = path
                break
        if made is None:
            raise FileExistsError(errno.EEXIST, "99 runs began in this second")
        run = Run(made)
        (run.path / CONFIG_FILE).write_text(config.to_toml(), encoding="utf-8")
        run.write_record(initial_record(run, config, "starting", time.time()))
    except OSError as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)  # a full disk: nothing half-made stays behind
        raise UserError(f"--run-dir: {parent}: can't be written ({error.strerror or error})") from None
    _register(run)
    return run


def delete_run(run: Run) -> None:
    """Remove a run's folder with everything in it. Raises `UserError` if it is running or can't be removed."""
    if not (run.path / RECORD_FILE).is_file():
        raise UserError(f"{run.path}: not a run of mario-tui")
    try:
        with run.lock():
            (run.path / RECORD_FILE).unlink()  # first: what a crash leaves behind is no run any more
            shutil.rmtree(run.path)
    except OSError as error:
        raise UserError(f"{run.path}: can't be removed ({error.strerror or error})") from None
    (_registry() / path_digest(run.path)).unlink(missing_ok=True)


def list_runs(run_dir: str | Path | None = None) -> list[Run]:
    """Runs of this user, newest first: those in `run_dir` alone, or without one those in `checkpoints` here and every
    other that the registry knows."""
    found = {path.parent.resolve() for path in Path(run_dir or RunConfig.run_dir).glob(f"*/{RECORD_FILE}")}
    if run_dir is None:
        found |= _registered()
    dated = []
    for path in found:
        with contextlib.suppress(UserError):
            if is_own(path) and is_own(path / RECORD_FILE):
                dated.append((_sane_date(Run(path).record().created_at), path))
    return [Run(path) for _, path in sorted(dated, reverse=True)]


def _sane_date(created_at: float) -> float:
    """A run's date as far as it can be believed: what claims to be of the future is older than all others."""
    return created_at if 0 < created_at < time.time() + _CLOCK_MAY_DIFFER_S else 0.0


def _registered() -> set[Path]:
    """Folders of the registry's runs; entries of those that were removed go, those on a disk that is away stay."""
    found = set()
    for entry in _registry().glob("*"):
        with contextlib.suppress(OSError, ValueError):  # another process may have removed it just now
            path = Path(read_bounded(entry, _MAX_PATH_BYTES).decode("utf-8"))
            if (path / RECORD_FILE).is_file():
                found.add(path)
            elif path.parent.is_dir() and any(path.parent.iterdir()):  # a mount point without its disk is empty
                entry.unlink(missing_ok=True)
    return found


def find_run(name: str, run_dir: str | Path | None = None) -> Run:
    """A run by its path, or among those of `list_runs` by its name or `latest`. Raises `UserError` naming what is
    there."""
    runs = list_runs(run_dir)
    where = "" if run_dir is None else f" in {run_dir}"
    if name == "latest":
        if not runs:
            raise UserError(f"latest: there is no run{where} yet")
        return runs[0]
    path = Path(name)
    if (path / RECORD_FILE).is_file():
        return Run(path)
    for run in runs:
        if run.name == name:
            return run
    known = ", ".join(run.name for run in runs[:5]) or "none"
    raise UserError(f"{name}: no such run{where}; accepted: a run's name or path, or latest (newest: {known})")


def _registry() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "mario-tui" / "runs"


def _register(run: Run) -> None:
    with contextlib.suppress(OSError):  # a read-only home must not stop a run; it is still found in its folder
        _registry().mkdir(parents=True, exist_ok=True)
        (_registry() / path_digest(run.path)).write_text(str(run.path), encoding="utf-8")
