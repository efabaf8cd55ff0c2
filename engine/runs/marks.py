"""Which runs, sweeps and folders are this user's own, and which code may be imported because of that.

A copied or unpacked folder belongs to the user too, and could hold any note. So what this program notes of runs and
sweeps lies outside their folders: which it has made here, and what code their options name; and which folders the user
trusts. Notes are found by the folder's path, so they are moved and removed with it: another folder that takes its place
later is another run. Where nobody has removed them, the time at which the folder was created tells; a sweep's have a
digest, too.

Whoever can write a note decides which code is imported: what the user typed now, what a run names that this user's
program has created or resumed here, and what a file names that lies in a folder which the user trusts. So notes count
only where nobody else can write, as for compiled code (engine.runtime.files), and only if they are this user's.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from engine.config.fields import ConfigError
from engine.config.sinks import TRACKERS, sink_names
from engine.config.user_code import code_of_file, named_code
from engine.errors import UserError
from engine.runtime.files import birth_of, make_private, program_folder, read_bounded, way_into, write_atomically
from engine.runtime.formats import parsed_json

RECORD_FILE = "run.json"
Kind = Literal["runs", "code", "sweeps", "folders", "births"]
_MAX_BYTES = 2**24


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run that has begun: it has a record then."""
    return (folder / RECORD_FILE).is_file()


def run_folder(path: Path) -> Path | None:
    """The folder of the run that the path is, or in which it is a checkpoint or a policy; None outside of runs."""
    return next(filter(is_run, (path, *path.parents[:2])), None)


def utf8_path(path: Path) -> Path:
    """The resolved path. Raises `UserError` if it is not valid UTF-8."""
    resolved = path.resolve()
    try:
        str(resolved).encode()
    except UnicodeEncodeError:
        raise UserError(f"{resolved}: the path of a run must be valid UTF-8") from None
    return resolved


def path_digest(path: Path) -> str:
    """16 hex digits that identify a run's path in file names."""
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


def marks(kind: Kind) -> Iterator[Path]:
    """All marks of a kind. Raises `OSError` if they can't be read, or somebody else could have put one there."""
    for entry in _guarded(kind).iterdir():
        if not entry.name.startswith(".") and _is_trusted(entry):  # with a dot: a temporary file of `write_atomically`
            yield entry


def mark_of(kind: Kind, path: Path) -> Path:
    """The file of a mark, whether or not there is one; `path`: the resolved one of a run's or a sweep's folder."""
    return _folder(kind) / path_digest(path)


def read(kind: Kind, path: Path) -> bytes:
    """The content of a mark. Raises `OSError` if there is none that this user must have written."""
    entry = _guarded(kind) / path_digest(path)
    if not _is_trusted(entry):
        raise OSError(errno.EPERM, "may be somebody else's", str(entry))
    if kind != "births" and not _is_of_this_folder(path):
        raise OSError(errno.ESTALE, "is of another folder that was here before", str(entry))
    return read_bounded(entry, _MAX_BYTES)


def write(kind: Kind, path: Path, content: bytes) -> None:
    """Write a mark. Raises `OSError` if that can't be done, or somebody else could replace it."""
    make_private(_folder(kind))
    if kind != "births":
        if not _is_of_this_folder(path):
            forget(path)
        write("births", path, birth_of(path).encode())
    write_atomically(_guarded(kind) / path_digest(path), content)


def why_not_own() -> str:
    """Return what is wrong with a folder that has no mark, as a clause."""
    if flaw := way_into("STATE", "code"):  # then no mark counts
        return f"may have been made by somebody else, because {flaw}"
    return "was not made here by you"


def _folder(kind: Kind) -> Path:
    return program_folder("STATE") / kind


def _guarded(kind: Kind) -> Path:
    """The folder of a kind, made private if it exists. Raises `PermissionError` if others could write to it."""
    if flaw := way_into("STATE", kind):
        raise PermissionError(errno.EPERM, flaw, str(_folder(kind)))
    return _folder(kind)


def _is_trusted(entry: Path) -> bool:
    """Return whether this user must have written a mark: somebody else may have put it there while the folder was open
    to others, also as a link to a file of this user's."""
    try:
        status = entry.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_plain and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _is_of_this_folder(path: Path) -> bool:
    """Return whether the folder at `path`, if there is any, is that of its marks; those of earlier versions say
    nothing."""
    if not (path.exists() and os.path.lexists(mark_of("births", path))):
        return True
    return birth_of(path).encode() == read("births", path)


def forget(path: Path) -> None:
    """Remove all marks of the folder at `path`."""
    for kind in get_args(Kind):
        with contextlib.suppress(OSError):  # a read-only home
            mark_of(kind, path).unlink(missing_ok=True)


def marks_of(path: Path) -> dict[Kind, bytes]:
    """The contents of the marks of the folder at `path`."""
    found = dict[Kind, bytes]()
    for kind in get_args(Kind):
        with contextlib.suppress(OSError):
            found[kind] = read(kind, path)
    return found


def move(before: Path, now: Path, contents: Mapping[Kind, bytes]) -> None:
    """Let the marks of the folder that was at `before` hold for it at `now`, and for no other one. `contents`: theirs,
    as they were before it was moved; a list of runs removes those of a folder that it does not find."""
    forget(before)
    forget(now)
    for kind, content in contents.items():
        with contextlib.suppress(OSError, ValueError):  # a read-only home; no JSON
            write(kind, now, _moved(kind, content, now))


def _moved(kind: Kind, content: bytes, now: Path) -> bytes:
    """The content of a mark whose folder is at `now`."""
    match kind:
        case "runs" | "folders":
            return str(now).encode()
        case "sweeps":
            return msgspec.json.encode({**parsed_json(content, dict[str, Any]), "path": str(now)})
        case "code" | "births":
            return content


def was_created_here(path: Path) -> bool:
    """Return whether this user's program has created the run of this folder: a mark, which lies outside, says so."""
    try:
        return read("runs", folder := utf8_path(path)) == str(folder).encode()
    except OSError:
        return False


def mark_own(folder: Path, options: Mapping[str, Any]) -> None:
    """Note that the user has started the run in a folder, and so has chosen the code that its options name."""
    code = named_code(options)
    if code:
        with contextlib.suppress(OSError):  # in a read-only home the user has to type it again
            write("code", folder, msgspec.json.encode(code))


def check_code(values: Mapping[str, Any], typed: Mapping[str, Any], source: Path | None, who: str) -> None:
    """Raise `ConfigError` for the first option that names code which nobody of this user has chosen.

    Args:
        values: options of a run, or a policy's metadata.
        typed: what the user has typed now, which replaces `values`.
        source: file or folder that `values` are from; None if from the user alone.
        who: what holds them, for people: `the policy`.
    """
    own = _own_code(source)
    for name, value in named_code(values).items():
        if typed.get(name) is None and own.get(name) != value:
            flaw = way_into("STATE", "code")
            unknown = f", and whether you started it is unknown, because {flaw}" if flaw else ""
            raise ConfigError(
                name, f"must be given, because {who} names code that would run{unknown}; if you trust it: {value}"
            )


def unknown_code(file: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Code that options from a file name, without what a run names that the user has started, if it is that run's."""
    own = _own_code(file.absolute())
    return {name: value for name, value in code_of_file(values).items() if own.get(name) != value}


def trust(folder: Path) -> None:
    """Note that the user trusts the files in a folder, none below it. Raises `OSError` if that can't be noted."""
    write("folders", folder, str(folder).encode())


def is_trusted(folder: Path) -> bool:
    try:
        return read("folders", folder) == str(folder).encode()
    except OSError:
        return False


def _own_code(source: Path | None) -> dict[str, str]:
    """The code that the run in whose folder the source lies names, if it is marked."""
    folder = None if source is None else run_folder(source)
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            return parsed_json(read("code", utf8_path(folder)), dict[str, str])
    return {}


_OF_SQLITE = "-journal", "-wal", "-shm"
"""Ends of the names of files beside a database, which SQLite reads when it opens that."""


def check_own(folder: Path) -> None:
    """Check that a folder and everything in it are regular files and folders owned by this user, and that no file has
    another name, which may be outside.

    Raises `UserError` naming the first one that is not; `OSError` if the folder can't be read.
    """
    pending = [folder]
    while pending:
        path = pending.pop()
        try:
            status = path.lstat()
            inside = [*path.iterdir()] if stat.S_ISDIR(status.st_mode) else []
        except FileNotFoundError:
            if path == folder:
                raise
            continue  # the run's host has just replaced or removed it
        pending += inside
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "neither a file nor a folder"
            raise UserError(f"{path}: is {kind}; a run's folder may hold only files and folders")
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise UserError(
                f"{path}: is a hard link; a run's folder may hold only files of one name (cp -r makes such)"
            )
        if status.st_uid != os.getuid():
            raise UserError(f"{path}: belongs to {user_name(status.st_uid)}; only the owner of a run can write to it")


def check_databases(folder: Path, sinks: str) -> None:
    """Check that the sinks open no database in a run's folder that somebody else has made, unless the user names it. A
    journal beside one makes SQLite delete the file that it names, whichever that is: there must be none.

    Raises `UserError`.
    """
    databases = {name: TRACKERS[name].database for name in sink_names(sinks) if name in TRACKERS}
    if not any(databases.values()) or was_created_here(folder):
        return
    for name, database in databases.items():
        if database is not None and not os.environ.get(database[0]):
            trusted = f"{database[0]}={database[1].format(folder)}"
            reason = f"{name} would open a database in {folder}, which {why_not_own()}"
            raise ConfigError("sinks", f"{reason}; name another place, or if you trust it: {trusted}")
    for path in folder.rglob("*"):
        if path.name.endswith(_OF_SQLITE):
            reason = f"in {folder}, which {why_not_own()}, and SQLite deletes what a journal names; remove it"
            raise UserError(f"{path.name}: is a journal {reason}")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
