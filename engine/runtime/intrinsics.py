"""An instruction for numba's kernels that it does not have: `prefetch` loads a cache line early."""

from __future__ import annotations

from typing import Any

import engine.runtime.jit  # noqa: F401  # sets numba's cache folder, so it comes before numba

# isort: split
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


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
