"""Files and folders that may come from somebody else: taken for what they should be, or refused.

A run's folder travels: it is copied between machines, unpacked from archives, shared between users. A link in it may
lead to any file of whoever opens it, a FIFO makes its reader wait, and a file may claim any size.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path


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


def is_own(path: Path) -> bool:
    """Whether a file or folder, no link to one, belongs to this user."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.getuid()


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
