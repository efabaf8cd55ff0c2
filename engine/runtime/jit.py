"""How environments and replay compile: `kernel`, `helper`, `routine` and `prefetch`, and where numba keeps the results.

numba reads `NUMBA_CACHE_DIR` once, when it is imported. Its default is `__pycache__` beside the source, which
an installed package may not be allowed to write. A value that the user has set is left alone, and so is a
numba that somebody imported earlier: then its own default holds.

What numba finds in its folder it unpickles, which can execute anything: so the folder must be this user's alone. And
numba is imported where nobody else can leave a file: it reads `.numba_config.yaml` in the working directory, which may
be a run's folder that came from somebody else.

numba compiles a kernel anew when the file that holds it changes, but not when a file changes whose functions
the kernel calls. So the folder's name carries a digest of all environment and replay sources: an upgrade never runs
half of the old code. A folder that no start has used for a month is removed.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

UNUSED_S = 30 * 24 * 3600


def sources_digest() -> str:
    """16 hex digits that change with any Python file that holds kernels, or could."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for file in sorted([*root.glob("envs/**/*.py"), *root.glob("buffers/**/*.py"), Path(__file__)]):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def use_user_cache() -> None:
    """Point numba below `$XDG_CACHE_HOME/mario-tui/numba` (or `~/.cache`) unless `NUMBA_CACHE_DIR` is set."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache(sources_digest()))


def user_cache(name: str) -> Path:
    """The folder of that name below `$XDG_CACHE_HOME/mario-tui/numba` (or `~/.cache`), if it is or can be this user's
    alone; else one that is."""
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
    """Whether a folder, no link to one, is this user's alone to write; others are shut out of it from now on."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        return False
    folder.chmod(0o700)
    return True


def keep_used(folder: Path) -> None:
    """Mark `folder` as used now, and remove its neighbours of other sources that no start has used for `UNUSED_S`.

    What can't be written or removed stays as it is: no start fails for it.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        for other in folder.parent.iterdir():
            of_ours = other != folder and re.fullmatch("[0-9a-f]{16}", other.name)
            if of_ours and other.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(other, ignore_errors=True)


def is_cold() -> bool:
    """Whether nothing is compiled yet: the first environment on a machine, or after an upgrade, takes a while."""
    return not any(Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbi")) if "NUMBA_CACHE_DIR" in os.environ else False


use_user_cache()

_here = os.open(".", os.O_RDONLY)
os.chdir("/")
try:
    from llvmlite import ir
    from numba import cfunc, njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic
finally:
    os.fchdir(_here)
    os.close(_here)

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """For functions that Python calls: kept on disk, and run without the interpreter's lock."""
    return cast(Function, njit(cache=True, nogil=True)(function))


def helper(function: Function) -> Function:
    """For functions that only kernels call: compiled into them, with nothing of their own on disk."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, njit(**options)(function))


def routine(signature: str) -> Callable[[Callable[..., None]], Callable[[], Any]]:
    """For a large function that several kernels call: they take it as an argument, and it is compiled only once.

    (What a kernel calls by name is compiled into it.) Decorated, it becomes a function that gives the compiled one,
    from disk if it was compiled before.
    """

    def decorate(function: Callable[..., None]) -> Callable[[], Any]:
        return functools.cache(lambda: cfunc(signature, cache=True)(function))

    return decorate


def _prefetch(context: Any, array: Any, index: Any) -> Any:
    """In kernels, `prefetch(array, index)`: begin to load the cache line of an element that is read soon.

    What is scattered over more memory than a cache holds is asked for in one loop and worked on in the next: then
    the misses overlap. The array has one dimension. Out of bounds it does nothing.
    """

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = target.make_array(signature.args[0])(target, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        builder.call(function, [place, number(0), number(3), number(1)])  # to read; into all caches; data
        return target.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
