"""numba decorators for environments and replay (`kernel`, `helper`, `routine`), the intrinsics `prefetch`,
`call_address` and `blend_words`, and numba's cache folder.

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
    """16 hex digits that change with any Python file of the environments, the buffers or this module."""
    root = Path(__file__).resolve().parents[1]
    return digest_of([*root.glob("envs/**/*.py"), *root.glob("buffers/**/*.py"), Path(__file__).resolve()], root)


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
    from llvmlite import ir
    from numba import cfunc, njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic
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


def routine(signature: str) -> Callable[[Callable[..., None]], Callable[[], Any]]:
    """Compile a large function once that several kernels call; they take it as an argument.

    (A function that a kernel calls by name is compiled into each kernel again.) The decorated name becomes a function
    without arguments that returns the compiled one, from the cache on disk if possible.
    """

    def decorate(function: Callable[..., None]) -> Callable[[], Any]:
        return functools.cache(lambda: cfunc(signature, cache=True)(function))

    return decorate


def _prefetch(context: Any, array: Any, index: Any) -> Any:
    """In kernels, `prefetch(array, index)`: begin to load the cache line of an element that will be read soon.

    For elements scattered over more memory than the cache holds: request them in one loop and read them in the next, so
    that the cache misses overlap. The array must have one dimension. An index out of bounds does nothing.
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


def _call_address(context: Any, address: Any, arrays: Any, number: Any) -> Any:
    """In kernels, `call_address(address, arrays, number)`: call the C function void(void *..., int64_t) at an address.

    arrays: a tuple of contiguous arrays, of which the function gets the data. Nothing is checked.
    """

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = []
        for index, kind in enumerate(signature.args[1]):
            array = target.make_array(kind)(target, builder, builder.extract_value(arguments[1], index))
            pointers.append(builder.bitcast(array.data, cgutils.voidptr_t))
        kinds = [*(pointer.type for pointer in pointers), arguments[2].type]
        function = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        builder.call(function, [*pointers, arguments[2]])
        return target.get_dummy_value()

    return types.void(address, arrays, number), generate


call_address: Any = intrinsic(_call_address)


def _blend_words(context: Any, masks: Any, source: Any, words: Any, target: Any, colors: Any) -> Any:
    """In kernels, `blend_words(masks, source, words, target, colors)`: two words of pixels from bit planes, with SIMD.

    masks: int64 array of one dimension; at `source` two words of the low plane, then two of the high one. words: int64
    array of one dimension, written at `target`. colors: four int64: the word of pixels where no bit is set, and the
    bits that change where the low bit, the high bit, and both are set. Nothing is checked.
    """

    def generate(backend: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pair, number = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)

        def place(array: int, index: Any) -> Any:
            data = backend.make_array(signature.args[array])(backend, builder, arguments[array]).data
            return builder.bitcast(builder.gep(data, [index]), pair.as_pointer())

        def load(index: Any) -> Any:
            return builder.load(place(0, index), align=8)

        def twice(word: Any) -> Any:
            first = builder.insert_element(ir.Constant(pair, ir.Undefined), word, number(0))
            return builder.insert_element(first, word, number(1))

        low, high = load(arguments[1]), load(builder.add(arguments[1], ir.IntType(64)(2)))
        blended, by_low, by_high, by_both = (twice(builder.extract_value(arguments[4], i)) for i in range(4))
        for mask, change in ((low, by_low), (high, by_high), (builder.and_(low, high), by_both)):
            blended = builder.xor(blended, builder.and_(mask, change))
        builder.store(blended, place(2, arguments[3]), align=8)
        return backend.get_dummy_value()

    return types.void(masks, source, words, target, colors), generate


blend_words: Any = intrinsic(_blend_words)
