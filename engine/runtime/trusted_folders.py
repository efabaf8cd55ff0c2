"""Whether somebody else could put something of theirs in place of a folder.

Whoever may write to a folder may rename what is in it. So a private folder protects nothing if one above it, or the
folder of a link that leads to it, belongs to somebody else.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

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


def is_private(folder: Path) -> bool:
    """Whether only this user may write to a folder (never true of a link). If so, its mode becomes 0700."""
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
    others = stat.S_IWOTH if _is_own_group(status.st_gid) else stat.S_IWGRP | stat.S_IWOTH
    if status.st_mode & others and not status.st_mode & stat.S_ISVTX:
        return f"{path} can be written by others"
    return ""


def _roots() -> tuple[int, ...]:
    """The user IDs that may be root's: in a user namespace that doesn't contain root, such as an Apptainer container's,
    its files seem to belong to "nobody"."""
    with contextlib.suppress(OSError, ValueError):  # such as on macOS
        ranges = Path("/proc/self/uid_map").read_text().splitlines()
        if not any(int(each.split()[0]) == 0 for each in ranges):
            return 0, int(Path("/proc/sys/kernel/overflowuid").read_text())
    return (0,)


def _is_own_group(gid: int) -> bool:
    """Whether a group is this user's own: it has the user's name, as many systems make one for each, and no other
    member. Into a primary group such as "users" they put everybody."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}
