"""numba's decorators for boards and replay (`kernel`, `helper`); the console has a compiler of its own (compiler.py).

numba's cache folder must be set before it is imported (code_cache.py). If numba was imported before this module, its
own default applies: `__pycache__` beside the source. numba also reads `.numba_config.yaml` from the working directory,
which may be a run folder from someone else, so it is imported with `/` as working directory.

numba recompiles a kernel when the file that defines it changes, but not when a function that it calls changes in
another file; the digest in the name of the cache folder covers that.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import engine.runtime.code_cache  # noqa: F401  # sets numba's cache folder, so it comes before numba

_here = os.open(".", os.O_RDONLY)
os.chdir("/")
try:
    from numba import njit
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
