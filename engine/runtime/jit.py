"""numba's decorators for boards and replay (`kernel`, `helper`); the console has a compiler of its own (compiler.py).

numba reads `.numba_config.yaml` from the working directory, which may be a run folder from someone else, so it is
imported with `/` as working directory.

numba recompiles a kernel when the file that defines it changes, but not when a function that it calls changes in
another file; the digest in the name of the cache folder (code_cache.py) covers that. numba itself keeps its code
elsewhere if that folder can't be written, where no such digest is, and ends the program if the disk fills up later.
Here, a cache that can't be written or read costs the time to compile again, and nothing else.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from engine.runtime.code_cache import code_cache  # also sets numba's cache folder, so it comes before numba

_here = os.open(".", os.O_RDONLY)
os.chdir("/")
try:
    from numba import njit
    from numba.core import caching as _caching
finally:
    os.fchdir(_here)
    os.close(_here)

Function = TypeVar("Function", bound=Callable[..., Any])
caching: Any = _caching  # typed in part


def kernel(function: Function) -> Function:
    """Compile a function that Python calls. It is cached on disk and releases the GIL."""
    dispatcher: Any = njit(nogil=True)(function)
    dispatcher._cache = _Cache(function)
    return cast(Function, dispatcher)


def helper(function: Function) -> Function:
    """Compile a function that only kernels call. It is compiled into them and has no cache file of its own."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, njit(**options)(function))


class _Folder(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]
    """The cache folder, whether it can be written or only read."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(code_cache() / self.get_suitable_cache_subpath(self._py_file))

    def ensure_cache_path(self) -> None:
        with contextlib.suppress(OSError):
            Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)


class _CompiledFunctions(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Folder,)


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _CompiledFunctions

    def load_overload(self, signature: Any, target: Any) -> Any:
        try:
            return super().load_overload(signature, target)
        except Exception:  # a damaged file can raise anything; without its index, it will be overwritten
            with contextlib.suppress(OSError):
                self.flush()

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(signature, compiled)
