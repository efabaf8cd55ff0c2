"""Safe access to files and folders that may come from someone else, and the folders that this program trusts.

Run folders are copied between machines, unpacked from archives and shared between users. A link in one may lead to
any file of the user who opens it, a FIFO blocks its reader, and a file may have any size. Inside a run's folder, links
are not followed, and what is written has no second name elsewhere (a hard link). Outside, in files that a user names,
links are the user's own and are followed (`links=True`).

Whoever may write to a folder may rename what is in it. So a private folder protects nothing if one above it, or the
folder of a link that leads to it, belongs to somebody else (`way_in`). A process that keeps a folder open
(`HeldFolder`) keeps the same one when somebody renames it or puts another one in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import grp
import io
import os
import pwd
import secrets
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal


def read_bounded(path: Path, max_bytes: int, *, links: bool = False) -> bytes:
    """Read a regular file of at most `max_bytes` bytes. With `links`, follow symbolic links.

    Raises `OSError` if it can't be read, is not a regular file or is larger.
    """
    with open_regular(path, os.O_RDONLY, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"must have at most {max_bytes:,} bytes, got {size:,}", str(path))
        return file.read(max_bytes)


def open_regular(path: Path, flags: int, *, links: bool = False, mode: int = 0o644):  # type: ignore[no-untyped-def]  # BinaryIO of either kind
    """Open a regular file with the flags of `os.open` and never block; `mode`: that of a new file.

    Raises `OSError` if it can't be opened, is not a regular file or, without `links`, is a symbolic link. A file that
    is opened for writing must belong to this user and have one name. All that is found out about the file that is
    open, so it stays true if its name gets another one.
    """
    nofollow = 0 if links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | nofollow | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
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


def open_lock(path: Path, flags: int = 0) -> BinaryIO:
    """Open a file that is locked, or create it; `flags`: more of those of `os.open`. Only this user can open it, from
    its first moment on: any user who can open a file can lock it. Raises `OSError` as `open_regular` does."""
    file: BinaryIO = open_regular(path, os.O_RDWR | os.O_CREAT | flags, mode=0o600)
    try:
        os.fchmod(file.fileno(), 0o600)  # it may be of an earlier version
    except OSError:
        file.close()
        raise
    return file


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


def partial_file(path: Path) -> Path:
    """Return where a file is until it is complete and gets its name `path`; the suffix tells its format."""
    return path.with_name(f".{path.stem}.partial{path.suffix}")


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
    """Return whether a write has failed for lack of space, on the disk or in the user's quota. safetensors raises
    exceptions of its own, which have only a text."""
    full = errno.ENOSPC, errno.EDQUOT
    return getattr(error, "errno", None) in full or any(f"(os error {code})" in str(error) for code in full)


def why_not_written(error: Exception) -> str:
    """Why a write has failed, for people. Its path may be one of this process alone."""
    reason = getattr(error, "strerror", None) or str(error)
    return "the disk is full" if is_full(error) else reason or type(error).__name__


def is_own(path: Path) -> bool:
    """Return whether a file or folder belongs to this user. A symbolic link never does."""
    try:
        return is_users(path.lstat())
    except OSError:
        return False


def is_users(status: os.stat_result) -> bool:
    """The same, by the `lstat` of a file or folder."""
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
        make_private(path.parent)
        write_atomically(path, content)


def make_private(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


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


Kind = Literal["CACHE", "CONFIG", "STATE"]
_USUAL = {"CACHE": ".cache", "CONFIG": ".config", "STATE": ".local/state"}


def home() -> Path:
    """The user's home folder.

    A user without an entry in the password database, as in containers, has none unless `HOME` is set. Nothing can be
    found or created below the path that stands for it then, just as in a home that can't be read or written.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def program_folder(kind: Kind) -> Path:
    """This program's folder for its caches, settings or state: `mario-tui` below `$XDG_<kind>_HOME`, or below the usual
    place in the home folder. A relative one is ignored (https://specifications.freedesktop.org/basedir-spec/): it would
    be another folder in each process, and in a run's host one of the run."""
    given = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
    return (given if given.is_absolute() else home() / _USUAL[kind]) / "mario-tui"


def private_folder(kind: Kind, name: str) -> Path:
    """The folder `name` of this program's, for what it believes: if others could write there, a path below which
    nothing can be found or created stands for it, as for the home folder."""
    return Path(os.devnull) / name if way_into(kind, name) else program_folder(kind) / name


def way_into(kind: Kind, name: str) -> str:
    """Why others could write to the folder `name` of this program's, such as "/srv can be written by others"; empty if
    nobody could. It need not exist. It and the program's get mode 0700: an earlier version left that to the umask."""
    folder = program_folder(kind)
    flaw = way_in(folder.parent)
    if not flaw:
        for each in (folder, folder / name):  # from above: nobody else can put another one in its place any more
            with contextlib.suppress(OSError):  # a read-only home
                if is_own(each) and stat.S_IMODE(each.lstat().st_mode) & 0o077:
                    each.chmod(0o700)
        flaw = way_in(folder / name)
    return flaw


_MAX_LINKS = 40
"""Links that the system follows in one path."""


def way_in(path: Path) -> str:
    """Why another user could replace `path`, such as "/srv can be written by others"; empty if nobody could.

    Every folder on the way must belong to this user or root and be writable by nobody else, unless its sticky bit keeps
    everybody from renaming what belongs to others. What does not exist yet is not looked at.
    """
    at = Path("/")
    flaw, pending, links = _flaw(at, at.lstat()), [*reversed(path.absolute().parts[1:])], 0
    while pending and not flaw:
        if (name := pending.pop()) == "..":
            at = at.parent  # `at` never contains links
            continue
        try:
            status = (at / name).lstat()
            flaw = _flaw(at / name, status)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                target = (at / name).readlink()
                pending += reversed(target.parts[target.is_absolute() :])
                at = Path("/") if target.is_absolute() else at
            elif stat.S_ISDIR(status.st_mode):
                at /= name
            else:
                break  # nothing can lie below it
        except (FileNotFoundError, NotADirectoryError):
            break
        except OSError as error:
            flaw = f"{at / name} can't be checked ({error.strerror or error})"
        if links > _MAX_LINKS:
            flaw = f"{path} leads in circles"
    return flaw


def open_to_others(path: Path) -> str:
    """Why another user could change or replace the file at `path`, or put a file into the folder there, which a sticky
    bit does not prevent; empty if nobody could. Raises `OSError` if there is nothing."""
    status, flaw = path.stat(), way_in(path)
    return flaw or (f"{path} can be written by others" if status.st_mode & _others(status.st_gid) else "")


def is_private(folder: Path) -> bool:
    """Return whether only this user may write to a folder (never true of a link). If so, its mode becomes 0700."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        return False
    folder.chmod(0o700)
    return True


def _flaw(path: Path, status: os.stat_result) -> str:
    if status.st_uid not in (os.getuid(), *_roots()):
        return f"{path} belongs to another user"
    if not stat.S_ISDIR(status.st_mode):
        return ""  # who may write to a file, or follow a link, can't replace it
    if status.st_mode & _others(status.st_gid) and not status.st_mode & stat.S_ISVTX:
        return f"{path} can be written by others"
    return ""


def _others(gid: int) -> int:
    """The permissions with which others may write to what belongs to a group."""
    return stat.S_IWOTH if _is_own_group(gid) else stat.S_IWGRP | stat.S_IWOTH


def _roots() -> tuple[int, ...]:
    """The user IDs that may be root's: in a user namespace that doesn't contain root, such as an Apptainer container's,
    its files seem to belong to "nobody"."""
    with contextlib.suppress(OSError, ValueError):  # such as on macOS
        ranges = Path("/proc/self/uid_map").read_text().splitlines()
        if not any(int(each.split()[0]) == 0 for each in ranges):
            return 0, int(Path("/proc/sys/kernel/overflowuid").read_text())
    return (0,)


def _is_own_group(gid: int) -> bool:
    """Return whether a group is this user's own: it has the user's name, as many systems make one for each, and no
    other member. Into a primary group such as "users" they put everybody."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}


_LONGEST_PATH = 1024
"""Bytes that macOS writes at most."""
_AT_FDCWD, _STATX_BTIME = -100, 0x800
"""Of Linux's statx(2)."""


class HeldFolder:
    """A folder that a process keeps open until it ends. Raises `OSError` if there is no such folder."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._path = path

    @property
    def identity(self) -> tuple[int, int]:
        """Return what it is known by, wherever it is."""
        return identity_of(os.fstat(self.descriptor))

    @property
    def path(self) -> Path:
        """Return where it is now. Raises `FileNotFoundError` if it was deleted, or moved to where it can't be found (by
        another machine, say)."""
        for path in self._paths():
            if is_same(path, os.fstat(self.descriptor)):
                self._path = path
                return path
        raise FileNotFoundError(f"{self._path} was moved or removed")

    def _paths(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield Path(f"/proc/self/fd/{self.descriptor}").readlink()  # Linux
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            with contextlib.suppress(OSError):
                name = fcntl.fcntl(self.descriptor, fcntl.F_GETPATH, bytes(_LONGEST_PATH))
                yield Path(os.fsdecode(name.rstrip(b"\0")))
        yield self._path

    @property
    def way_in(self) -> Path:
        """A path that leads into it wherever it is, for this process as long as it lives and for those that it starts.
        On systems that have none: where it is now."""
        way = Path(f"/proc/{os.getpid()}/fd/{self.descriptor}")
        return way if is_same(way, os.fstat(self.descriptor)) else self.path


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Device and inode: no other file or folder of this machine has them at the same time."""
    return status.st_dev, status.st_ino


def birth_of(folder: Path) -> str:
    """Return what tells a folder from another one that gets its path later, and perhaps its inode: when it was created,
    in nanoseconds; if the system does not tell, its inode. Raises `OSError` if there is none."""
    status = folder.stat()
    if born := getattr(status, "st_birthtime", 0):  # macOS
        return f"{born} s"
    known = ctypes.create_string_buffer(256)
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_BTIME, known)
    seconds, nanoseconds = struct.unpack_from("qI", known, 80)
    return f"{seconds}.{nanoseconds:09} s" if seconds else f"inode {status.st_ino}"


def misses_file_of(folder: Path, error: BaseException) -> bool:
    """Return whether an error, or the one that it was raised for, says that the folder or a file in it is missing."""
    cause = error if isinstance(error, OSError) else error.__context__
    return isinstance(cause, FileNotFoundError) and Path(str(cause.filename)).is_relative_to(folder)


def is_same(path: Path, known: os.stat_result) -> bool:
    """Return whether a path leads to the file or folder with this status."""
    try:
        return os.path.samestat(path.stat(), known)
    except OSError:
        return False


def expanded(path: str) -> Path:
    """A path with `~` expanded; `~name` of an unknown user is left as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
