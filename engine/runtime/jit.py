"""numba's decorators for environments and replay (`kernel`, `helper`, `routine`), and its cache folder.

numba reads `NUMBA_CACHE_DIR` once, when it is imported. Its default is `__pycache__` beside the source, which may not
be writable in an installed package. A value set by the user is kept. If numba was imported before this module, its own
default applies.

numba unpickles the files in its cache, which can execute any code, so only this user may be able to write there. It
also reads `.numba_config.yaml` from the working directory, which may be a run folder from someone else, so it is
imported with `/` as working directory.

numba recompiles a kernel when the file that defines it changes, but not when a function that it calls changes in
another file. So the folder's name contains a digest of all environment and replay sources: after an upgrade no old code
is left in use. Folders unused for a month are removed.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from engine.runtime.digest import digest_of

UNUSED_S = 30 * 24 * 3600


@functools.cache
def sources_digest() -> str:
    """16 hex digits that change with any Python file of the environments, the buffers, or what compiles them."""
    root = Path(__file__).resolve().parents[1]
    compiling = [root / "runtime" / "jit.py", root / "runtime" / "intrinsics.py"]
    return digest_of([*root.glob("envs/**/*.py"), *root.glob("buffers/**/*.py"), *compiling], root)


def use_user_cache() -> None:
    """Have numba cache below `$XDG_CACHE_HOME/mario-tui/numba` (or `~/.cache`) unless `NUMBA_CACHE_DIR` is set."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache(sources_digest()))


def user_cache(name: str) -> Path:
    """Create and return the folder `name` below `$XDG_CACHE_HOME/mario-tui/numba` (or `~/.cache`).

    If it can't be created, or other users may write to it, return a private folder below the temporary one instead.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mario-tui" / "numba"
    for parent in (base, Path(tempfile.gettempdir()) / f"mario-tui-numba-{os.getuid()}"):
        with contextlib.suppress(OSError):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (parent / name).mkdir(mode=0o700, exist_ok=True)
            if is_private(parent) and is_private(parent / name):
                keep_used(parent / name)
                return parent / name
    return Path(tempfile.mkdtemp(prefix="mario-tui-numba-"))


def is_private(folder: Path) -> bool:
    """Whether only this user may write to a folder (never true of a link). If so, its mode becomes 0700."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        return False
    folder.chmod(0o700)
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
    return Path(os.environ["NUMBA_CACHE_DIR"])


def is_cold() -> bool:
    """Whether no compiled kernel is cached. Then creating the first environment takes a while."""
    return not any(Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbi")) if "NUMBA_CACHE_DIR" in os.environ else False


use_user_cache()

_here = os.open(".", os.O_RDONLY)
os.chdir("/")
try:
    from numba import cfunc, njit
finally:
    os.fchdir(_here)
    os.close(_here)

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that Python calls. It is cached on disk and releases the GIL."""
    return cast(Function, njit(cache=True, nogil=True)(function))


def helper(function: Function) -> Function:
    """Compile a function that only kernels call. It is compiled into them and has no cache file of its own."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, njit(**options)(function))


def routine(signature: str) -> Callable[[Callable[..., None]], Callable[[], int]]:
    """Compile a large function once that several kernels call; they take its address as an argument.

    (A function that a kernel calls by name is compiled into each kernel again.) The decorated name becomes a function
    without arguments that returns the address of the compiled one, from the cache on disk if possible. A kernel gets
    back the function with `function_at(signature)(address)` (intrinsics.py).
    """

    def decorate(function: Callable[..., None]) -> Callable[[], int]:
        compiled: Callable[[], Any] = functools.cache(lambda: cfunc(signature, cache=True)(function))
        return lambda: int(compiled().address)

    return decorate
