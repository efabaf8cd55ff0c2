"""Where the socket of a run's host is."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.runs.run import Run, path_digest
from engine.runtime.files import is_own
from engine.runtime.trusted_folders import way_in

_LONGEST_ADDRESS = 100
"""Bytes in a socket's path: Linux accepts 107, macOS 103."""


def socket_path(run: Run) -> Path:
    """A short path for the run's socket, in a folder that only this user can enter or replace."""
    name = f"{path_digest(run.path)}.sock"
    for folder in _socket_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
            is_private = stat.S_ISDIR(status.st_mode) and is_own(folder) and not status.st_mode & 0o077
            if is_private and not way_in(folder) and len(os.fsencode(folder / name)) <= _LONGEST_ADDRESS:
                return folder / name
    # Another user owns all of them, so use a new one with a random name.
    safe = next((each for each in (tempfile.gettempdir(), "/tmp") if not way_in(Path(each))), None)
    return Path(tempfile.mkdtemp(prefix="mario-tui-", dir=safe)) / name


def _socket_folders() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        yield Path(runtime) / "mario-tui"
    yield Path(tempfile.gettempdir()) / f"mario-tui-{os.getuid()}"
    yield Path("/tmp") / f"mario-tui-{os.getuid()}"  # $TMPDIR may also be too long
