"""A copy of a run's folder that follows it, for a run on a machine whose disk this one does not see.

The machine of the run takes what has changed since it last did (`Changes`), this one writes it into its own folder. A
checkpoint is taken once, as a whole, and is complete or absent in the copy too. A replay in files stays where it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from engine.runs.checkpoints import MANIFEST, CheckpointError, commit, committed, read_manifest, remove, sync
from engine.runs.marks import RECORD_FILE
from engine.runs.run import Run
from engine.runtime.files import read_bounded, write_atomically

What = Literal["record", "files", "all"]
_MAX_BYTES = 2**32
_MAX_FOLDERS_BYTES = 2**30
"""Of all files in other folders than checkpoints, whose size their writers do not limit."""
_LEFT = ("step-", "replay", ".")
"""What the names of folders that are not copied with the others begin with."""


class Changes(msgspec.Struct, frozen=True):
    """What has changed in a run's folder."""

    files: dict[str, bytes]
    """Contents of files, by path in the folder."""
    checkpoints: dict[str, dict[str, bytes]]
    """New checkpoints: contents by name of file."""
    kept: list[str]
    """All checkpoints that are there."""
    gone: list[str] = []
    """Files of other folders that are no longer there, by path."""
    left_out: list[str] = []
    """Files that are not copied, because together they are too large, by path."""


class Follower:
    """Takes the changes of a run's folder since the last look."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._taken: dict[str, tuple[int, int]] = {}

    def take(self, what: What = "all") -> Changes:
        """Of the `record` alone, of all `files` and checkpoints, or also of other folders, such as those of trackers:
        their files may not fit each other while the run trains."""
        if what == "record":
            return Changes(self._changed([self._run.record_path]), {}, [])
        checkpoints, newest = dict[str, dict[str, bytes]](), committed(self._run)
        for folder in newest:
            if folder.name not in self._taken:
                with contextlib.suppress(OSError, CheckpointError):  # a newer one has just taken its place
                    checkpoints[folder.name] = _content(folder)
                    self._taken[folder.name] = (0, 0)
        files = self._changed([path for path in self._run.path.glob("[!.]*") if not path.is_dir()])
        kept = [folder.name for folder in newest]
        if what == "files":
            return Changes(files, checkpoints, kept)
        paths, left_out, size = list[Path](), list[str](), 0
        for path in _in_folders(self._run.path):
            with contextlib.suppress(OSError):
                size += path.lstat().st_size
                if size > _MAX_FOLDERS_BYTES:
                    left_out.append(self._name(path))
                else:
                    paths.append(path)
        gone = [name for name in self._taken if "/" in name and not (self._run.path / name).exists()]
        for name in gone:
            del self._taken[name]
        return Changes(files | self._changed(paths), checkpoints, kept, gone, left_out)

    def _changed(self, paths: list[Path]) -> dict[str, bytes]:
        files = dict[str, bytes]()
        for path in paths:
            with contextlib.suppress(OSError):  # such as a link, or one that is just being replaced
                name, status = self._name(path), path.lstat()
                stamp = status.st_mtime_ns, status.st_size
                if path.suffix != ".lock" and self._taken.get(name) != stamp:
                    files[name] = read_bounded(path, _MAX_BYTES)
                    self._taken[name] = stamp
        return files

    def _name(self, path: Path) -> str:
        return path.relative_to(self._run.path).as_posix()


def _content(folder: Path) -> dict[str, bytes]:
    """The files of a checkpoint. Raises `OSError` or `CheckpointError` if it is not complete."""
    names = [*read_manifest(folder).files, MANIFEST]
    return {name: read_bounded(_inside(folder, name), _MAX_BYTES) for name in names}


def _in_folders(parent: Path) -> Iterator[Path]:
    """The files in folders of a run that are not checkpoints; links are not followed."""
    for folder, folders, files in os.walk(parent):
        if Path(folder) == parent:
            folders[:] = sorted(name for name in folders if not name.startswith(_LEFT))
        else:
            yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def write_changes(run: Run, changes: Changes) -> None:
    """Bring a copy up to date. Its record comes last: without one, the folder is no run. Raises `OSError`."""
    run.path.mkdir(parents=True, exist_ok=True)
    for name, files in changes.checkpoints.items():
        final = _inside(run.path, name)
        partial = final.with_name(f".{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for file, content in files.items():
            write_atomically(_inside(partial, file), content)
        sync(partial)
        with contextlib.suppress(CheckpointError):  # not complete
            commit(partial, final)
        shutil.rmtree(partial, ignore_errors=True)
    for name in changes.gone:
        _inside(run.path, *name.split("/")).unlink(missing_ok=True)
    for name, content in sorted(changes.files.items(), key=lambda each: each[0] == RECORD_FILE):
        path = _inside(run.path, *name.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    if changes.kept:
        for folder in committed(run):
            if folder.name not in changes.kept:
                remove(folder)


def _inside(folder: Path, *names: str) -> Path:
    """The path of these names below the folder. Raises `OSError` for one outside."""
    path = folder
    for name in names:
        if not name or name in (".", "..") or "/" in name or "\0" in name or path.is_symlink():
            raise OSError(f"{'/'.join(names)!r} is no name of a file")
        path = path / name
    return path
