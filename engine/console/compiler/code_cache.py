"""The folder for compiled code: the kernels', and the cartridge's (object_code.py).

It is in the environment as `MARIO_TUI_CODE`, which child processes inherit, so that all processes of a run use one
folder. A folder that the user names there is used if it is safe.

Loading compiled code executes it, so only this user may be able to write there, or to replace one of the folders above.
The folder's name is a digest of the compiler's sources; what is compiled has its own in the names of files. Folders
unused for a month are removed.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from engine.runtime.files import is_private, open_to_others, program_folder, way_in

VARIABLE = "MARIO_TUI_CODE"
UNUSED_S = 30 * 24 * 3600


def digest_of(files: Iterable[Path], root: Path) -> str:
    """Return 16 hex digits that change with the contents of any of the files, or with its path below `root`."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def sources_digest() -> str:
    """16 hex digits that change with any Python file of the compiler. They are read once, when this module is imported:
    an edit later is for the next process."""
    root = Path(__file__).resolve().parent
    return digest_of([*root.glob("*.py")], root)


def use_user_cache() -> str:
    """Keep compiled code below `$XDG_CACHE_HOME/mario-tui/code` (or `~/.cache`) unless `MARIO_TUI_CODE` is set.

    Returns a line that says why another folder is used if others could get into that one; empty if they can't.
    """
    digest = sources_digest()
    wanted, given = program_folder("CACHE") / "code" / digest, Path(os.environ.get(VARIABLE, ""))
    if given.is_absolute():  # a relative one would lead into the folder of the run
        wanted = given
        with contextlib.suppress(OSError):  # now: later, somebody else could create it
            wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    flaw = way_in(wanted) or (open_to_others(wanted) if wanted.exists() else "")
    if flaw or wanted is not given:
        os.environ[VARIABLE] = str(user_cache(digest))
    kept = f"kept in {code_cache()}" if code_cache().exists() else "not kept"
    return flaw and f"compiled code is {kept}, because {flaw}"


def user_cache(name: str) -> Path:
    """Create and return the folder `name` below `$XDG_CACHE_HOME/mario-tui/code` (or `~/.cache`).

    If it can't be created, or others could get into it, return one in a private folder below the temporary one instead,
    the same each time; if that can't be created either, a path that never exists.
    """
    base = program_folder("CACHE") / "code"
    with contextlib.suppress(OSError):
        if _is_made(base / name):
            return base / name
    with contextlib.suppress(OSError):  # also if the disk has no room for a temporary file
        for temporary in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"))):
            prefix = f"mario-tui-code-{os.getuid()}"
            for folder in (temporary / prefix, *temporary.glob(f"{prefix}.*")):
                with contextlib.suppress(OSError):
                    if _is_made(folder / name):
                        return folder / name
            if not way_in(temporary):  # others have made all of these
                folder = Path(tempfile.mkdtemp(prefix=f"{prefix}.", dir=temporary))
                return folder / name if _is_made(folder / name) else Path(os.devnull) / name
    return Path(os.devnull) / name


def _is_made(folder: Path) -> bool:
    """Create a folder and its parent, or mark it as used; returns whether nobody else can get into it."""
    if way_in(folder):
        return False
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if way_in(folder) or not (is_private(folder.parent) and is_private(folder)):
        return False
    keep_used(folder)
    return True


def keep_used(folder: Path) -> None:
    """Mark `folder` as used now, and remove sibling cache folders that have been unused for `UNUSED_S` seconds.

    Files that can't be written or removed are left alone; that is no reason to fail.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        for other in folder.parent.iterdir():
            of_ours = other != folder and re.fullmatch("[0-9a-f]{16}", other.name)
            if of_ours and other.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(other, ignore_errors=True)


def code_cache() -> Path:
    """The folder for compiled code."""
    return Path(os.environ[VARIABLE])


def is_cold() -> bool:
    """Return whether no compiled kernel is cached. Then creating the first environment takes a while."""
    return not any(code_cache().glob("*.o"))


notice = use_user_cache()
"""For the user, if other users could get into the usual folder."""
