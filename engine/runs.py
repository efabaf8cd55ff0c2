"""Where a run lives and whether it is alive: `<run-dir>/<run>/` with config, record, logs and checkpoints.

A run's host holds a lock on `run.lock` for as long as it lives; the kernel drops it however the host dies, so a record
that says "running" beside a free lock is a *lost* run. A per-user registry remembers where runs are, so that they are
found from any folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import psutil

from engine.config import RunConfig, load_toml, make_config
from engine.errors import UserError
from engine.files import is_own, open_regular, read_bounded
from engine.messages import State

CONFIG_FILE = "config.toml"
RECORD_FILE = "run.json"
LOCK_FILE = "run.lock"
LOG_FILE = "run.log"
HISTORY_FILE = "history.msgpack"
_MOST_BYTES = 2**20
"""Of a record or another small file; those that we write have some hundred."""
_CLOCK_MAY_DIFFER_S = 24 * 3600.0
_LONGEST_ADDRESS = 100
"""Bytes of a socket's path: Linux takes 107, macOS 103."""
ACTIVE: tuple[State, ...] = ("starting", "running", "paused", "stopping")


Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class RunRecord(msgspec.Struct, kw_only=True):
    """What `run.json` says; written by the host at every change of state and every few seconds."""

    name: str
    game: str
    stage: str
    runner: str
    state: State
    steps: Count
    created_at: Seconds
    updated_at: Seconds
    pid: int = 0
    socket: str = ""
    env_steps: Count = 0
    episodes: Count = 0
    wall_s: Seconds = 0.0
    mean_return: Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)] | None = None
    reason: str = ""
    checkpoint: str | None = None


class _Pid(msgspec.Struct):
    """Of a record, the process that serves the run."""

    pid: int = 0


class Run:
    """A run's folder. Reads and writes its files; knows nothing of what runs inside."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def log_path(self) -> Path:
        return self.path / LOG_FILE

    @property
    def history_path(self) -> Path:
        """What a dashboard shows of the run when its host is gone; see `engine.client.read_recording`."""
        return self.path / HISTORY_FILE

    def identity(self) -> int | None:
        """What tells the folder from another that takes its place; None if there is none."""
        try:
            return self.path.stat().st_ino
        except FileNotFoundError:
            return None

    def config(self) -> RunConfig:
        """The stored options. Raises `UserError` naming file and key if they can't be read."""
        return read_config(self.path / CONFIG_FILE)

    def record(self) -> RunRecord:
        """The stored record, its state corrected to "lost" if no host is alive behind an active one; "damaged" if it
        can't be understood, with what the options tell. Raises `UserError` if there is none."""
        path = self.path / RECORD_FILE
        try:
            written_at = path.lstat().st_mtime
        except OSError as error:
            raise UserError(f"{self.path}: not a run of mario-tui ({error})") from None
        try:
            record = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=RunRecord)
        except (OSError, ValueError, RecursionError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return self._damaged(f"{RECORD_FILE}: {reason}", written_at)
        if record.state in ACTIVE and not self.is_alive():
            record.state = "lost"
        return record

    def _damaged(self, reason: str, written_at: float) -> RunRecord:
        config = RunConfig()
        with contextlib.suppress(UserError):
            config = self.config()
        return _record_of(self, config, "damaged", written_at, reason)

    def write_record(self, record: RunRecord) -> None:
        record.updated_at = time.time()
        write_atomically(self.path / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record)))

    def is_alive(self) -> bool:
        """Whether a host holds the run's lock, or lives without one since somebody removed it."""
        try:
            with open_regular(self.path / LOCK_FILE, os.O_RDONLY) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return self._has_host()
        except OSError:
            return False
        return False

    @contextlib.contextmanager
    def lock(self) -> Iterator[BinaryIO]:
        """Hold the run for one host, which may inherit the open file, and the lock with it. Raises `UserError` if
        another one has the run."""
        with open_regular(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT) as file:
            os.fchmod(file.fileno(), 0o600)  # who can open a file can lock it
            for last_try in (False, False, False, True):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if last_try:
                        raise self._taken() from None
                    time.sleep(0.05)  # somebody's is_alive() may hold the lock for an instant
            if self._has_host():
                raise self._taken()
            yield file

    def _taken(self) -> UserError:
        return UserError(f"{self.name}: is running already; attach to it instead")

    def _has_host(self) -> bool:
        """Whether the process that the record names, another than this one, is at work in this very folder."""
        try:
            pid = msgspec.json.decode(read_bounded(self.path / RECORD_FILE, _MOST_BYTES), type=_Pid).pid
            process = psutil.Process(pid)
            return pid != os.getpid() and "engine.host" in process.cmdline() and Path(process.cwd()) == self.path
        except (OSError, OverflowError, ValueError, RecursionError, psutil.Error):
            return False


def _record_of(run: Run, config: RunConfig, state: State, at: float, reason: str = "") -> RunRecord:
    """The record of a run of which only the options are known, made at unix time `at`."""
    return RunRecord(
        name=run.name,
        game=config.game,
        stage=config.board or config.stage,
        runner=config.runner,
        state=state,
        steps=config.steps,
        created_at=at,
        updated_at=at,
        reason=reason,
    )


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
        run.write_record(_record_of(run, config, "starting", time.time()))
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
    (_registry() / _digest(run.path)).unlink(missing_ok=True)


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
            path = Path(read_bounded(entry, _MOST_BYTES).decode("utf-8"))
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


def read_config(path: Path) -> RunConfig:
    return make_config(load_toml(path), str(path))


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new content and nothing between."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def socket_path(run: Run) -> Path:
    """A short address for the run's socket (they end at 108 bytes), in a folder only this user can enter."""
    name = f"{_digest(run.path)}.sock"
    for folder in _socket_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and is_own(folder) and not status.st_mode & 0o077
            if is_private and len(os.fsencode(folder / name)) <= _LONGEST_ADDRESS:
                return folder / name
    # Somebody made all of them before: a new one has a name that nobody knows.
    return Path(tempfile.mkdtemp(prefix="mario-tui-")) / name


def _socket_folders() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        yield Path(runtime) / "mario-tui"
    yield Path(tempfile.gettempdir()) / f"mario-tui-{os.getuid()}"
    yield Path("/tmp") / f"mario-tui-{os.getuid()}"  # $TMPDIR may be long, too


def _registry() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "mario-tui" / "runs"


def _register(run: Run) -> None:
    with contextlib.suppress(OSError):  # a read-only home must not stop a run; it is still found in its folder
        _registry().mkdir(parents=True, exist_ok=True)
        (_registry() / _digest(run.path)).write_text(str(run.path), encoding="utf-8")


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


def record_as_dict(run: Run) -> dict[str, Any]:
    """The record with the run's path, for `runs --json`."""
    return {**msgspec.to_builtins(run.record()), "path": str(run.path)}
