"""Safe access to files and folders that may come from someone else.

Run folders are copied between machines, unpacked from archives and shared between users. A link in one may lead to
any file of the user who opens it, a FIFO blocks its reader, and a file may have any size. Inside a run's folder, links
are not followed, and what is written has no second name elsewhere (a hard link). Outside, in files that a user names,
links are the user's own and are followed (`links=True`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def read_bounded(path: Path, max_bytes: int, *, links: bool = False) -> bytes:
    """Read a regular file of at most `max_bytes` bytes. With `links`, follow symbolic links.

    Raises `OSError` if it can't be read, is not a regular file or is larger.
    """
    with open_regular(path, os.O_RDONLY, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"must have at most {max_bytes:,} bytes, got {size:,}", str(path))
        return file.read(max_bytes)


def open_regular(path: Path, flags: int, *, links: bool = False):  # type: ignore[no-untyped-def]  # BinaryIO of either kind
    """Open a regular file with the flags of `os.open` and never block; new files get mode 0644.

    Raises `OSError` if it can't be opened, is not a regular file or, without `links`, is a symbolic link. A file that
    is opened for writing must belong to this user and have one name. All that is found out about the file that is
    open, so it stays true if its name gets another one.
    """
    nofollow = 0 if links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | nofollow | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP and not links and path.is_symlink():
            raise OSError(errno.ELOOP, "is a link", str(path)) from None
        raise
    status, writes = os.fstat(descriptor), flags & (os.O_WRONLY | os.O_RDWR)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a regular file"
    elif writes and status.st_uid != os.getuid():
        problem = "belongs to another user"
    elif writes and status.st_nlink > 1:
        problem = "is a hard link"
    if problem:
        os.close(descriptor)
        raise OSError(errno.EINVAL, problem, str(path))
    return os.fdopen(descriptor, "rb" if not writes else "ab" if flags & os.O_APPEND else "r+b")


def lock_exclusively(file: BinaryIO) -> None:
    """Lock an open file for this process and those that inherit it. Raises `BlockingIOError` if another one holds it,
    `OSError` if the filesystem has no locks."""
    for is_last_try in (False, False, False, True):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if is_last_try:
                raise
            time.sleep(0.05)  # a process that only looks whether the file is locked holds the lock for an instant


def new_file(path: Path) -> io.BufferedWriter:
    """Create a file for writing, in the place of whatever has this name: an earlier process may have left a part of one
    there, or somebody else a link."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    return os.fdopen(descriptor, "wb")


def open_output(path: Path) -> BinaryIO:
    """Open a file that a user names for output, without waiting for anybody; what it holds stays until it is written.
    Links are followed, and devices and pipes with a reader, such as /dev/stdout, are accepted.

    Raises `OSError` if it can't be opened, or is a pipe without a reader.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            raise OSError(errno.ENXIO, "is a pipe that nobody reads", str(path)) from None
        raise
    os.set_blocking(descriptor, True)  # a reader may be slow
    return os.fdopen(descriptor, "wb")


def write_output(path: Path, text: str) -> None:
    """Write a file that a user names for output; see `open_output`."""
    with open_output(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate()
        file.write(text.encode())


def is_full(error: Exception) -> bool:
    """Whether a write has failed for lack of space, on the disk or in the user's quota. safetensors raises exceptions
    of its own, which have only a text."""
    full = errno.ENOSPC, errno.EDQUOT
    return getattr(error, "errno", None) in full or any(f"(os error {code})" in str(error) for code in full)


def why_not_written(error: Exception) -> str:
    """Why a write has failed, for people."""
    return "the disk is full" if is_full(error) else str(error) or type(error).__name__


def is_own(path: Path) -> bool:
    """Whether a file or folder belongs to this user. A symbolic link never does."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.getuid()


def write_atomically(path: Path, content: bytes, folder: int | None = None) -> None:
    """Replace a file. Readers, and whatever is left after a crash, see either the old or the new content. `folder`: see
    `replacing`."""
    with replacing(path, folder=folder) as file:
        file.write(content)


def write_if_possible(path: Path, content: bytes) -> None:
    """Replace a file of this program in the user's home, whose folder may be missing. A home that can't be written, or
    a full disk, is no reason to fail: nothing depends on the file."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600, folder: int | None = None) -> Iterator[BinaryIO]:
    """A new file that replaces `path` at the end of the block. After an exception, `path` is as it was.

    `folder`: descriptor of the folder in which that happens, wherever it has been moved since; None: that of `path`.
    """
    final = str(path) if folder is None else path.name
    temporary = str(Path(final).with_name(f".{path.name}.{secrets.token_hex(4)}"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, mode, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)  # Path takes no descriptor
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
