"""Files and folders that may come from somebody else: taken for what they should be, or refused.

A run's folder travels: it is copied between machines, unpacked from archives, shared between users. A link in it may
lead to any file of whoever opens it, a FIFO makes its reader wait, and a file may claim any size.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

from engine.errors import UserError


def read_bounded(path: Path, most: int, *, links: bool = False) -> bytes:
    """The content of a regular file of at most `most` bytes; `links` may lead to it if that is said.

    Raises `OSError` if it can't be read, is something else or larger.
    """
    with open_regular(path, os.O_RDONLY, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"{size:,} bytes, of which at most {most:,} are accepted", str(path))
        return file.read(most)


def open_regular(path: Path, flags: int, *, links: bool = False):  # type: ignore[no-untyped-def]  # BinaryIO of either kind
    """Open a regular file as `os.open` does, new ones with mode 0644; never waits. Raises `OSError`."""
    nofollow = 0 if links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | nofollow | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "is a link", str(path)) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
    except OSError:
        os.close(descriptor)
        raise
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    return os.fdopen(descriptor, "rb" if not writes else "ab" if flags & os.O_APPEND else "r+b")


def check_own(folder: Path) -> None:
    """Check that a folder and everything in it are plain files and folders of this user.

    Raises `UserError` naming the first that is not.
    """
    pending = [folder]
    while pending:
        path = pending.pop()
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            pending += path.iterdir()
        elif not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "neither a file nor a folder"
            raise UserError(f"{path}: is {kind}; a run's folder may hold only files and folders")
        if status.st_uid != os.getuid():
            raise UserError(f"{path}: belongs to {user_name(status.st_uid)}; only the owner of a run can write to it")


def is_own(path: Path) -> bool:
    """Whether a file or folder, no link to one, belongs to this user."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.getuid()


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
