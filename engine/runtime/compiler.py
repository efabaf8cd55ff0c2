"""Compiles functions in a small part of Python (function_writer.py) to machine code: the console and its game's rules.

numba compiles much more of Python, but takes 12 s of CPU time for these functions, most of it to infer types. This
takes 1.5 s, nearly all of it in LLVM.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import itertools
import operator
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from engine.runtime.function_source import keep_source, key_of
from engine.runtime.function_writer import Module
from engine.runtime.instruction_writer import CHECKED
from engine.runtime.llvm_values import (
    ELEMENTS,
    INT,
    Array,
    ArrayType,
    Definition,
    Intrinsic,
    Number,
    Routine,
    RoutineType,
    Type,
    Value,
    flat,
    named,
    parameter_names,
    parameters,
    result_type,
)
from engine.runtime.object_code import load

_ENTRY = "entry"
_WORD = 2**64 - 1
Function = TypeVar("Function", bound=Callable[..., Any])


def helper(function: Function) -> Function:
    """Mark a function that kernels call. It is compiled into each of them; called from Python, it is not compiled."""
    keep_source(function)
    return function


class Kernel:
    """A compiled function that Python calls. Other kernels that call it contain a copy of it.

    It is compiled at the first call, or loaded from the cache of this user. It runs without the GIL. Arguments are
    integers, contiguous arrays of exactly the types of the signature, and tuples of them. Returns an int, 0 if the
    function returns nothing.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        functools.update_wrapper(self, function)
        self.types = parse_types(signature)
        self._compiled = _Compiled(function, signature, _kernel_entry)
        self._call: Callable[[Any], int] | None = None

    def __call__(self, *arguments: Any) -> int:
        return self.run(_packed(arguments, self.types))

    def run(self, words: bytes) -> int:
        """Call it with packed arguments."""
        if self._call is None:
            self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self._compiled.address())
        return self._call(words)


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function that Python calls; see `Kernel`, and `parse_types` for the signature."""

    def decorate(function: Function) -> Function:
        return cast(Function, Kernel(function, signature))

    return decorate


def bind_last(compiled: Callable[..., Any], *arguments: Any) -> Callable[..., int]:
    """A kernel with its last arguments fixed: a function of the others. The fixed ones are checked only now; to check
    an array at each call takes up to half a microsecond."""
    assert isinstance(compiled, Kernel)
    split = len(compiled.types) - len(arguments)
    first, bound = compiled.types[:split], (arguments, _packed(arguments, compiled.types[split:]))

    def call(*given: Any) -> int:
        _, last = bound  # the words are addresses of the arguments, which must be kept
        return compiled.run(_packed(given, first) + last)

    return call


def routine(signature: str) -> Callable[[Callable[..., None]], Callable[[], int]]:
    """Compile a large function once that several kernels call; they take its address as an argument.

    (A function that a kernel calls by name is compiled into each kernel again.) The decorated name becomes a function
    without arguments that returns the address of the compiled one. A kernel gets back the function with
    `routine_at(signature)(address)`.
    """
    return lambda function: _Compiled(function, signature, _routine_entry).address


def parse_types(signature: str) -> tuple[Type, ...]:
    """The types in a signature, e.g. "int64, uint8[2], (int64[1], int64)": a number, an array with two dimensions, and
    a tuple of an array and a number."""

    def parse(node: ast.expr) -> Type:
        match node:
            case ast.Tuple(parts):
                return tuple(parse(part) for part in parts)
            case ast.Name("int64"):
                return INT
            case ast.Subscript(ast.Name(dtype), ast.Constant(int(dimensions))) if dtype in ELEMENTS:
                return ArrayType(np.dtype(dtype), dimensions)
        raise ValueError(f"unknown type {ast.unparse(node)}")

    types = parse(ast.parse(f"({signature},)", mode="eval").body)
    assert isinstance(types, tuple)
    return types


def _packed(arguments: Sequence[Any], types: Sequence[Type]) -> bytes:
    """The arguments of a kernel as words in a row: for an array the address of Python's object."""
    words = _words(arguments, types)
    return struct.pack(f"{len(words)}Q", *words)


def _words(arguments: Sequence[Any], types: Sequence[Type]) -> list[int]:
    if len(arguments) != len(types):
        raise TypeError(f"expected {len(types)} arguments, got {len(arguments)}")
    words = []
    for value, kind in zip(arguments, types, strict=True):
        if isinstance(kind, ArrayType):
            if not isinstance(value, np.ndarray) or value.dtype != kind.dtype or value.ndim != kind.dimensions:
                given = f"{value.dtype}[{value.ndim}]" if isinstance(value, np.ndarray) else type(value).__name__
                raise TypeError(f"expected an array {kind.dtype}[{kind.dimensions}], got {given}")
            flags = value.flags
            if not flags.c_contiguous or not flags.aligned:
                raise TypeError("expected a contiguous array, got one with gaps between its elements, or unaligned")
            words.append(id(value))
        elif isinstance(kind, tuple):
            words += _words(value, kind)
        else:
            words.append(operator.index(value) & _WORD)
    return words


class _Compiled:
    """A function to be compiled, or loaded from the cache, when its address is needed."""

    def __init__(
        self, function: Callable[..., Any], signature: str, entry: Callable[[Module, Definition, Any], None]
    ) -> None:
        keep_source(function)
        self._function, self._signature, self._entry = function, signature, entry
        self._lock = threading.Lock()
        self._engine: Any = None  # LLVM's owner of the code

    def address(self) -> int:
        with self._lock:
            if self._engine is None:
                key = f"{key_of(self._function)} ({self._signature}) {_NumPyArray.shape.offset} {CHECKED}"
                self._engine = load(self._function.__name__.strip("_"), key, self._write, optimise=True)
        return int(self._engine.get_function_address(_ENTRY))

    def _write(self) -> str:
        types = parse_types(self._signature)
        module = Module()
        self._entry(module, module.define(self._function, types), types)
        return "\n".join(module.lines)


def routine_at(signature: str) -> Any:
    """In kernels, the `routine` with this signature, from its address."""
    kind = RoutineType(parse_types(signature))
    return Intrinsic(lambda writer, address: Routine(kind, address.name))


def _routine_entry(module: Module, definition: Definition, types: tuple[Type, ...]) -> None:
    """A routine takes its arguments as our own functions do."""
    names = parameters(types)
    module.lines += [
        f"define void @{_ENTRY}({', '.join(names)}) nounwind {{",
        f"  call {result_type(definition)} @{definition.name}({', '.join(names)})",
        "  ret void",
        "}",
    ]


def _kernel_entry(module: Module, definition: Definition, types: tuple[Type, ...]) -> None:
    """A kernel takes the address of its arguments, as words in a row: numbers, and addresses of Python's arrays."""
    words = itertools.count()
    lines: list[str] = []

    def load(kind: str, name: str, base: str, offset: int) -> None:
        lines.append(f"  {name}.place = getelementptr i8, ptr {base}, i64 {offset}")
        lines.append(f"  {name} = load {kind}, ptr {name}.place")

    def unpack(value: Value) -> None:
        match value:
            case tuple():
                for part in value:
                    unpack(part)
            case Array(_, address, shape):
                load("ptr", f"{address}.object", "%words", 8 * next(words))
                load("ptr", address, f"{address}.object", _NumPyArray.data.offset)
                load("ptr", f"{address}.shape", f"{address}.object", _NumPyArray.shape.offset)
                for index, size in enumerate(shape):
                    load(INT, size, f"{address}.shape", 8 * index)
            case Number(name):
                load(INT, name, "%words", 8 * next(words))

    arguments = named(types, parameter_names())
    unpack(arguments)
    call = f"call {result_type(definition)} @{definition.name}({', '.join(flat(arguments))})"
    lines += [f"  %result = {call}", "  ret i64 %result"] if definition.returns else [f"  {call}", "  ret i64 0"]
    module.lines += [f"define i64 @{_ENTRY}(ptr %words) nounwind {{", *lines, "}"]


class _NumPyArray(ctypes.Structure):
    """The beginning of an array in memory. It is part of NumPy's binary interface: every extension module reads it.

    Asking NumPy for the address of each array would take longer than a frame of the console.
    """

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("data", ctypes.c_void_p),
        ("dimensions", ctypes.c_int),
        ("shape", ctypes.c_void_p),
    )
