"""The folder of a cluster that `--ray local` starts: Ray's sockets, logs, and objects that its memory can't hold.

Ray makes its folders writable for all users, so they are below one that only this user can enter. Whoever starts a
cluster takes a numbered folder there and holds its lock; a folder whose lock nobody holds is left over.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

from engine.errors import UserError
from engine.runtime.files import open_regular
from engine.runtime.home import program_folder
from engine.runtime.trusted_folders import is_private, way_in

_MAX_ADDRESS_BYTES = 107 if sys.platform == "linux" else 103
"""Bytes in the path of a Unix socket."""
_OF_RAY = "/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store"
"""Ray's longest name of a socket below its folder; the last number is that of a process."""
_SPARE = Path("/var/tmp")
"""Holds the folder if the user's cache can't: on a disk, unlike `$XDG_RUNTIME_DIR`, because Ray moves objects there."""


def take_folder() -> tuple[Path, BinaryIO]:
    """An absolute path, at which nothing is, for the folder of a cluster, and its lock: until that is closed, here and
    in the processes that inherit it, nobody else gets the same path.

    Raises `UserError` if there is no private folder, or none whose path is short enough for Ray's sockets.
    """
    reasons = []
    for parent in (program_folder("CACHE") / "ray", _SPARE / f"mario-tui-{os.getuid()}"):
        try:
            return _take_below(parent)
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror or error}")
    why = "; ".join(reasons)
    raise UserError(f"--ray: local: there is no folder for Ray's files ({why}); set XDG_CACHE_HOME to a short path")


def _take_below(parent: Path) -> tuple[Path, BinaryIO]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if parent.is_symlink():
        raise OSError(errno.ELOOP, "is a link")
    parent = parent.resolve()
    if flaw := way_in(parent):
        raise OSError(errno.EPERM, flaw)
    if not is_private(parent):
        raise OSError(errno.EPERM, "another user can write to it")
    for number in itertools.count():
        folder = parent / str(number)
        if (size := len(os.fsencode(folder)) + len(_OF_RAY)) > _MAX_ADDRESS_BYTES:
            reason = f"Ray's sockets would have paths of {size} bytes, and at most {_MAX_ADDRESS_BYTES} are possible"
            raise OSError(errno.ENAMETOOLONG, reason)
        lock: BinaryIO = open_regular(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():  # whoever should have deleted it was killed as well
                shutil.rmtree(folder)
        except BlockingIOError:  # another run's
            lock.close()
        except OSError:
            lock.close()
            raise
        else:
            return folder, lock
    raise AssertionError("numbers do not end")
