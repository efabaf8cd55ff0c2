"""A copy of a run's folder that follows it, for a run on a machine whose disk this one does not see.

The machine of the run takes what has changed since it last did (`Changes`), this one writes it into its own folder. A
checkpoint is taken once, as a whole, and is complete or absent in the copy too. A replay in files stays where it is.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import msgspec

from engine.runs.checkpoints import committed
from engine.runs.run import RECORD_FILE, Run
from engine.runtime.files import read_bounded, write_atomically

_MAX_BYTES = 2**32


class Changes(msgspec.Struct, frozen=True):
    """What has changed in a run's folder."""

    files: dict[str, bytes]
    """Contents of the files in it, by name."""
    checkpoints: dict[str, dict[str, bytes]]
    """New checkpoints: contents by name of file."""
    kept: list[str]
    """All checkpoints that are there."""


class Follower:
    """Takes the changes of a run's folder since the last look."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._taken: dict[str, tuple[int, int]] = {}

    def take(self, *, record_only: bool = False) -> Changes:
        """`record_only`: what else has changed is left for the next time."""
        files, checkpoints = dict[str, bytes](), dict[str, dict[str, bytes]]()
        newest = [] if record_only else committed(self._run)
        for folder in newest:
            with contextlib.suppress(OSError):  # a newer one has just taken its place
                if folder.name not in self._taken:
                    checkpoints[folder.name] = {
                        path.name: read_bounded(path, _MAX_BYTES) for path in folder.iterdir() if path.is_file()
                    }
                    self._taken[folder.name] = (0, 0)
        paths = [self._run.record_path] if record_only else self._run.path.glob("[!.]*")
        for path in paths:
            with contextlib.suppress(OSError):  # such as a link, or one that is just being replaced
                status = path.lstat()
                stamp = status.st_mtime_ns, status.st_size
                if not path.is_dir() and path.suffix != ".lock" and self._taken.get(path.name) != stamp:
                    files[path.name] = read_bounded(path, _MAX_BYTES)
                    self._taken[path.name] = stamp
        return Changes(files, checkpoints, [folder.name for folder in newest])


def write_changes(run: Run, changes: Changes) -> None:
    """Bring a copy up to date. Its record comes last: without one, the folder is no run. Raises `OSError`."""
    run.path.mkdir(parents=True, exist_ok=True)
    for name, files in changes.checkpoints.items():
        final = _inside(run.path, name)
        partial = final.with_name(f".{name}.copy")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for file, content in files.items():
            _inside(partial, file).write_bytes(content)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    for name, content in sorted(changes.files.items(), key=lambda each: each[0] == RECORD_FILE):
        write_atomically(_inside(run.path, name), content)
    if changes.kept:
        for folder in committed(run):
            if folder.name not in changes.kept:
                shutil.rmtree(folder, ignore_errors=True)


def _inside(folder: Path, name: str) -> Path:
    """The path of that name in the folder itself. Raises `OSError` for one outside."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise OSError(f"{name!r} is no name of a file")
    return folder / name
