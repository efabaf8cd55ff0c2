"""A run's folder `<run-dir>/<run>/`, with options, record, logs and checkpoints, and whether the run is alive.

A run's host holds a lock on `run.lock` as long as it lives. The kernel releases it however the host ends, so a run
whose record says "running" while the lock is free is *lost*. Locks may not reach other machines, and some filesystems
have none: then the host's process counts, or on another machine how old the record is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import psutil

from engine.config.fields import ConfigError, check, coerce
from engine.config.game import GAMES
from engine.config.reading import NOT_TRAINED, Description, ReportedLoop, about, defaults, load_toml, make_config
from engine.config.run_config import RunConfig, specs_of
from engine.config.runners import RUNNERS
from engine.errors import UserError
from engine.protocol.messages import State
from engine.protocol.results import BestEvaluation, Count, FinalResult, Score, Seconds
from engine.runs.marks import RECORD_FILE, utf8_path
from engine.runtime.files import HeldFolder, lock_exclusively, open_lock, open_regular, write_atomically
from engine.runtime.formats import read_json

CONFIG_FILE = "config.toml"
LOOP_FILE = "loop.json"
LOCK_FILE = "run.lock"
LOG_FILE = "run.log"
HISTORY_FILE = "history.msgpack"
LARGEST_FILE = 2**20
"""Maximum size of a record; those that we write have a few hundred bytes."""
ACTIVE: tuple[State, ...] = ("starting", "running", "paused", "judging", "stopping", "silent")
NOT_BEGUN = "stopped before training began"
"""Why a run has ended that was stopped during its start."""
LOOP_ENDED = "the training loop has ended"
"""Why a run has ended that was reported by a loop, and not stopped."""
NOT_SAVED = "the final checkpoint could not be written"
"""Why a run has failed that has trained to its end, such as on a full disk."""
_REFUSED_SINCE: dict[str, Any] = {"final_gamma": None, "advantage_learning": 0.0, "random_phase": False}
"""Options that earlier versions accepted together with others that contradict them, and their values without effect."""
SILENCE_S = 5.0
"""Seconds after which a host, which reports every second, is said not to respond."""
_ELSEWHERE_S = 30.0
"""Seconds for which a record that a host on another machine has written, at least every ten, says that it is alive."""


class RunRecord(msgspec.Struct, kw_only=True):
    """Contents of `run.json`, which the host writes at every change of state, and every five seconds."""

    name: str
    game: str
    task: str = msgspec.field(name="stage")
    """What is played: the value of the game's option `tasks`."""
    runner: str
    state: State
    steps: Count
    created_at: Seconds
    updated_at: Seconds
    pid: int = 0
    host: str = ""
    """Name of the machine that the process is on."""
    socket: str = ""
    env_steps: Count = 0
    episodes: Count = 0
    wall_s: Seconds = 0.0
    mean_return: Score | None = None
    best: BestEvaluation | None = None
    """Of many evaluations on the same episodes the one with the best score, which is partly luck."""
    result: FinalResult | None = None
    reason: str = ""
    checkpoint: str | None = None
    alerts: Count = 0
    """Number of alerts since the host has started the run, or resumed it."""
    alert: str = ""
    """The newest of them."""
    alert_at: Seconds = 0.0
    """Its time."""

    @property
    def told_state(self) -> State | Literal["stopped"]:
        """The state as people and scripts are told it."""
        return end_state(self.env_steps, self.steps, self.reason) if self.state == "finished" else self.state

    @property
    def elsewhere(self) -> str:
        """The name of the other machine that the run is on; empty if it is on this one, or on none."""
        return self.host if self.state in ACTIVE and self.host != socket.gethostname() else ""

    def encode(self) -> bytes:
        """Its JSON, dated now."""
        self.updated_at = time.time()
        return msgspec.json.format(msgspec.json.encode(self))


class _Owner(msgspec.Struct):
    """The part of a record that names the run's host process."""

    pid: int = 0
    host: str = ""
    state: str = ""
    updated_at: float = 0.0


class Run:
    """A run's folder. Reads and writes its files, and tells whether a host has it.

    Raises `UserError` if its path is not valid UTF-8: records, messages and the registry of runs contain it.
    """

    def __init__(self, path: Path) -> None:
        self.path = utf8_path(path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def record_path(self) -> Path:
        return self.path / RECORD_FILE

    @property
    def log_path(self) -> Path:
        return self.path / LOG_FILE

    @property
    def history_path(self) -> Path:
        """The recording that a dashboard shows after the host has ended; see `engine.runs.recording`."""
        return self.path / HISTORY_FILE

    def look(self) -> Path:
        """Return where the folder is now, which is `path` from then on."""
        return self.path

    def status(self) -> os.stat_result | None:
        """Return what tells the folder from another one of the same path; None if it is gone."""
        try:
            return self.path.stat()
        except FileNotFoundError:
            return None

    def config(self) -> RunConfig:
        """The stored options. Raises `UserError`, naming file and key, if they can't be read, or if the program does
        not train the run."""
        described = self.description()
        if isinstance(described, ReportedLoop):
            raise UserError(f"{self.name} {NOT_TRAINED}")
        return described

    def description(self) -> Description:
        """The stored options, or what the loop that reports the run says of itself. Raises `UserError`."""
        path = self.path / LOOP_FILE
        try:
            return read_json(path, ReportedLoop, LARGEST_FILE)
        except FileNotFoundError:
            return read_config(self.path / CONFIG_FILE)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise UserError(f"{path}: can't be read ({reason})") from None

    def record(self) -> RunRecord:
        """The stored record. If it is active, its state becomes "lost" if no host is alive, and "silent", with the
        reason, if a host is alive but has not reported for `SILENCE_S` seconds.

        If the record can't be read or parsed, the result is a "damaged" record made from the options. Raises
        `UserError` if there is no record.
        """
        record = self._stored_record()
        if record.state in ACTIVE and not self.is_alive():
            record = self._stored_record()  # its host may have told of its end and exited meanwhile
            if record.state in ACTIVE:  # while it is judged, it has trained and is saved
                record.state = "finished" if record.state == "judging" else "lost"
        elif record.state in ACTIVE and (silence_s := _silence_s(record)) >= SILENCE_S:
            record.state, record.reason = "silent", f"not responding for {silence_s:.0f} s"
        return record

    def _stored_record(self) -> RunRecord:
        path = self.record_path
        try:
            written_at = path.lstat().st_mtime
        except OSError as error:
            raise self._no_record(error) from None
        try:
            record = read_json(path, RunRecord, LARGEST_FILE)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(path):  # it has been moved or removed since
                raise self._no_record(error) from None
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return self._damaged(f"{RECORD_FILE}: {reason}", written_at)
        record.name = self.name  # the folder may have been copied or moved since
        if record.checkpoint is not None:
            checkpoint = self.path / Path(record.checkpoint).name
            record.checkpoint = str(checkpoint) if checkpoint.name.startswith("step-") and checkpoint.is_dir() else None
        return record

    def _no_record(self, error: OSError) -> UserError:
        if not self.path.is_dir():
            return UserError(f"{self.path}: not a run of mario-tui (no such folder; was it moved or removed?)")
        return UserError(f"{self.path}: not a run of mario-tui ({error.strerror or error}: {RECORD_FILE})")

    def _damaged(self, reason: str, written_at: float) -> RunRecord:
        config: Description = RunConfig()
        with contextlib.suppress(UserError):
            config = self.description()
        return initial_record(self, config, "damaged", written_at, reason)

    def write_record(self, record: RunRecord) -> None:
        write_atomically(self.record_path, record.encode())

    def is_alive(self) -> bool:
        """Return whether a host holds the run's lock, or is alive although someone has removed the lock file."""
        try:
            with open_regular(self.path / LOCK_FILE, os.O_RDONLY) as file:
                is_shared = os.fstat(file.fileno()).st_nlink > 1
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return not is_shared or self._has_host()  # a copy that is made of hard links is locked with its original
        except OSError:  # there is no such file, or no lock on this filesystem
            return self._has_host()
        return self._has_host(elsewhere_only=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[BinaryIO]:
        """Lock the run for one host and return the open lock file; a process that inherits it also holds the lock.

        Raises `UserError` if another host has the run.
        """
        with open_lock(self.path / LOCK_FILE) as file:
            try:
                lock_exclusively(file)
            except BlockingIOError:
                raise self._already_running() from None
            except OSError:  # this filesystem has no locks
                pass
            if self._has_host():
                raise self._already_running()
            yield file

    def _already_running(self) -> UserError:
        with contextlib.suppress(UserError):
            if machine := self.record().elsewhere:
                return UserError(f"{self.name}: is running on {machine}; attach to it there")
        return UserError(f"{self.name}: is already running; attach to it instead")

    def _has_host(self, *, elsewhere_only: bool = False) -> bool:
        """Return whether the record names a host process other than this one that is alive and works in this folder, or
        one on another machine that has written the record lately. After its last record a host has only its exit before
        it."""
        try:
            owner = read_json(self.record_path, _Owner, LARGEST_FILE)
            if owner.state not in ACTIVE:
                return False
            if owner.host not in ("", socket.gethostname()):
                return abs(time.time() - owner.updated_at) < _ELSEWHERE_S
            if elsewhere_only:
                return False
            process = psutil.Process(owner.pid)
            return owner.pid != os.getpid() and "engine.host" in process.cmdline() and Path(process.cwd()) == self.path
        except (OSError, OverflowError, ValueError, psutil.Error):
            return False


class HeldRun(Run):
    """A run whose folder this process keeps open: it stays the same one when it is renamed. Raises `OSError` if there
    is none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.folder = HeldFolder(self.path)

    def look(self) -> Path:
        """Return where the folder is now, which is `path` from then on. Raises `FileNotFoundError` if it was deleted,
        or moved to where it can't be found; `UserError` if its path is not valid UTF-8 any more."""
        self.path = utf8_path(self.folder.path)
        return self.path


def end_state(env_steps: int, steps: int, reason: str) -> Literal["finished", "stopped"]:
    """Return how a run is said to have ended that ended in order after `env_steps` of `steps`, 0 if that was
    unknown."""
    return "finished" if env_steps >= steps > 0 or is_complete(reason) else "stopped"


def is_complete(reason: str) -> bool:
    """Return whether a run ended because its steps or its episodes are done, or because its loop says so."""
    return reason.endswith("are done") or reason == LOOP_ENDED


def _silence_s(record: RunRecord) -> float:
    """Seconds since a host on this machine has dated its socket; 0 if that is unknown."""
    if not record.host or record.elsewhere or not psutil.pid_exists(record.pid):  # a new host has the lock, no record
        return 0.0
    try:
        return time.time() - Path(record.socket).stat().st_mtime
    except (OSError, ValueError):  # it is about to get another socket
        return 0.0


def initial_record(run: Run, config: Description, state: State, at: float, reason: str = "") -> RunRecord:
    """A record for a run of which only the options are known, created at Unix time `at` (seconds)."""
    return RunRecord(
        name=run.name,
        game=config.game,
        task=config.task_label,
        runner=config.runner,
        state=state,
        steps=config.steps,
        created_at=at,
        updated_at=at,
        reason=reason,
    )


def read_config(path: Path) -> RunConfig:
    """The options of a run.

    Its file names all that there were. So one that is missing is newer than the run, and does not take the game's
    default, with which the run's weights may not fit. What a game has found out itself is not found out again, which
    may run code that the other options name. An option that earlier versions let contradict others is off.
    """
    options = load_toml(path)
    game, runner = (options.get(kind, getattr(RunConfig, kind)) for kind in ("game", "runner"))
    newer: dict[str, object] = {}
    if game in GAMES and runner in tuple(RUNNERS):  # otherwise `make_config` tells
        specs = specs_of(game)
        hidden = {name for name, spec in specs.items() if spec.metadata["hidden"]}
        newer = {name: specs[name].default for name in hidden.union(defaults(game, runner))}
    values = {**newer, **options}
    with about(str(path)):
        try:
            return make_config(values)
        except ConfigError as error:
            if error.field not in _REFUSED_SINCE:
                raise
            spec = specs_of(game)[error.field]
            check(spec, coerce(spec, values[error.field]))  # or it is wrong by itself
            return make_config({**values, error.field: _REFUSED_SINCE[error.field]})


ANNOTATION_FILE = "annotation.json"
MOST_TAGS = 8
LONGEST_NOTE = 2000
TAG = "1 to 24 letters, digits, - and _"
_TAG = re.compile(r"[\w-]{1,24}")
_MAX_BYTES = 2**16


class Annotation(msgspec.Struct, frozen=True):
    """Tags in the order in which they were given, and a note."""

    tags: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_TAGS)] = ()
    note: Annotated[str, msgspec.Meta(max_length=LONGEST_NOTE)] = ""


def make_annotation(tags: str, note: str) -> Annotation:
    """From tags separated by spaces or commas, with or without #. Raises `UserError` that names the field."""
    words = {word.removeprefix("#").lower(): word for word in re.split(r"[\s,]+", tags) if word}
    for tag, word in words.items():
        if not _TAG.fullmatch(tag):
            raise UserError(f"tags: each must be {TAG}, got {word!r}")
    if len(words) > MOST_TAGS:
        raise UserError(f"tags: must be at most {MOST_TAGS}, got {len(words)}")
    note = " ".join(note.split())
    if len(note) > LONGEST_NOTE:
        raise UserError(f"note: must have at most {LONGEST_NOTE:,} characters, got {len(note):,}")
    return Annotation(tuple(words), note)


def read_annotation(run: Run) -> Annotation:
    """The run's annotation; an empty one if there is none or it can't be read."""
    try:
        return read_json(run.path / ANNOTATION_FILE, Annotation, _MAX_BYTES)
    except (OSError, ValueError):
        return Annotation()


def write_annotation(run: Run, annotation: Annotation) -> None:
    """Write it. Raises `UserError` if the folder can't be written."""
    try:
        write_atomically(run.path / ANNOTATION_FILE, msgspec.json.encode(annotation))
    except OSError as error:
        raise UserError(f"{run.path / ANNOTATION_FILE}: can't be written ({error.strerror or error})") from None
