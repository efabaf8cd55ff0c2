"""Instructions for kernels that numba does not have.

Each is a function that writes LLVM code. `prefetch` loads a cache line early, `blend_words` draws with SIMD,
`call_address` and `function_at` call compiled code by its address.
"""

from __future__ import annotations

from typing import Any

import engine.runtime.jit  # noqa: F401  # sets numba's cache folder, so it comes before numba

# isort: split
from llvmlite import ir
from numba import types
from numba.core import cgutils, sigutils
from numba.extending import intrinsic


def function_at(signature: str) -> Any:
    """In kernels, the function of a `routine` with this signature, from its address.

    Passing the function itself as an argument takes numba 0.15 ms per call, to find out its type.
    """
    arguments, result = sigutils.normalize_signature(signature)
    kind = types.FunctionType(result(*arguments))

    def function(context: Any, address: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = cgutils.create_struct_proxy(kind)(target, builder)
            null = ir.Constant(cgutils.voidptr_t, None)
            found.c_addr = builder.inttoptr(arguments[0], cgutils.voidptr_t)
            found.py_addr = found.jit_addr = null
            return found._getvalue()

        return kind(address), generate

    return intrinsic(function)


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
