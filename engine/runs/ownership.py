"""Checks whether a run's folder can be trusted, since folders are copied between machines and users."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from engine.errors import UserError


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


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
