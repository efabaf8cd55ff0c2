"""Compiles functions in a small part of Python (function_writer.py) to machine code: the console, games, the replay.

numba compiles much more of Python, but takes five times as long for the console, most of it to infer types. This takes
1.5 s, nearly all of it in LLVM.
"""

from __future__ import annotations

import ast
import copy
import ctypes
import functools
import itertools
import operator
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.function_source import Intrinsic, keep_source, key_of
from engine.console.compiler.function_writer import Module
from engine.console.compiler.object_code import load
from engine.console.compiler.values import (
    CHECKED,
    ELEMENTS,
    FLOAT,
    INT,
    Array,
    ArrayType,
    Definition,
    InstructionWriter,
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

_ENTRY = "entry"
_WORD = 2**64 - 1
_USABLE = 0x101
"""NumPy's flags C_CONTIGUOUS and ALIGNED as bits. To read them one by one takes longer."""
Function = TypeVar("Function", bound=Callable[..., Any])
Element = TypeVar("Element", bound=np.generic)
Array1: TypeAlias = Annotated[NDArray[Element], 1]
"""An array with one dimension, for the fields of named tuples that kernels take; `Array2` and `Array3` have more."""
Array2: TypeAlias = Annotated[NDArray[Element], 2]
Array3: TypeAlias = Annotated[NDArray[Element], 3]


def helper(function: Function) -> Function:
    """Mark a function that kernels call. It is compiled into each of them; called from Python, it is not compiled."""
    keep_source(function)
    return function


class Kernel:
    """A compiled function that Python calls. Other kernels that call it contain a copy of it.

    It is compiled at the first call, or loaded from the cache of this user. It runs without the GIL. Arguments are
    numbers, contiguous arrays of exactly the types of the signature, and tuples of them. Returns an int, 0 if the
    function returns nothing.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        functools.update_wrapper(self, function)
        self.types = parse_types(signature, function.__globals__)
        self._compiled = _Compiled(function, self.types, _kernel_entry)
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


class BoundKernel:
    """A kernel with its last arguments fixed; see `bind_last`."""

    def __init__(self, compiled: Kernel, arguments: tuple[Any, ...]) -> None:
        split = len(compiled.types) - len(arguments)
        self._compiled, self._first = compiled, compiled.types[:split]
        self._arguments = arguments  # the words are their addresses, so they must be kept
        self._last = _packed(arguments, compiled.types[split:])

    def __deepcopy__(self, memo: dict[int, Any]) -> BoundKernel:
        return BoundKernel(self._compiled, copy.deepcopy(self._arguments, memo))

    def __call__(self, *given: Any) -> int:
        return self.run(self.pack(*given))

    def pack(self, *given: Any) -> bytes:
        """The other arguments for `run`, of this and of all other bindings of the kernel. The caller must keep them:
        these are their addresses."""
        return _packed(given, self._first)

    def run(self, words: bytes) -> int:
        """Call it with packed arguments."""
        return self._compiled.run(words + self._last)


def bind_last(compiled: Callable[..., Any], *arguments: Any) -> BoundKernel:
    """A kernel with its last arguments fixed: a function of the others. The fixed ones are checked only now; to check
    an array at each call takes up to half a microsecond."""
    assert isinstance(compiled, Kernel)
    return BoundKernel(compiled, arguments)


def routine(signature: str) -> Callable[[Callable[..., None]], Callable[[], int]]:
    """Compile a large function once that several kernels call; they take its address as an argument.

    (A function that a kernel calls by name is compiled into each kernel again.) The decorated name becomes a function
    without arguments that returns the address of the compiled one. A kernel gets back the function with
    `routine_at(signature)(address)`.
    """
    return lambda function: _Compiled(function, parse_types(signature), _routine_entry).address


def parse_types(signature: str, names: Mapping[str, Any] = MappingProxyType({})) -> tuple[Type, ...]:
    """The types in a signature, e.g. "int64, uint8[2], (int64[1], float64)": a number, an array with two dimensions,
    and a tuple of an array and a number. A named tuple among `names` stands for the types of its fields, which are
    `int`, `bool`, `float`, or `Array1` to `Array3`.
    """

    def parse(node: ast.expr) -> Type:
        match node:
            case ast.Tuple(parts):
                return tuple(parse(part) for part in parts)
            case ast.Name("int64"):
                return INT
            case ast.Name("float64"):
                return FLOAT
            case ast.Subscript(ast.Name(dtype), ast.Constant(int(dimensions))) if dtype in ELEMENTS:
                return ArrayType(np.dtype(dtype), dimensions)
            case ast.Name(name) if hasattr(names.get(name), "_fields"):
                return _types_of_fields(names[name])
        raise ValueError(f"unknown type {ast.unparse(node)}")

    types = parse(ast.parse(f"({signature},)", mode="eval").body)
    assert isinstance(types, tuple)
    return types


def _types_of_fields(kind: Any) -> Any:
    """The types of a named tuple's fields, as one of its kind."""
    types: list[Type] = []
    for hint in get_type_hints(kind, include_extras=True).values():
        if hint in (int, bool, float):
            types.append(FLOAT if hint is float else INT)
        else:
            (dimensions,), array = hint.__metadata__, hint.__origin__
            types.append(ArrayType(np.dtype(_element_of(array)), dimensions))
    return kind._make(types)


def _element_of(array: Any) -> Any:
    """The element type of `NDArray[T]`: an alias of its own since NumPy 2.5, before that `ndarray[shape, dtype[T]]`."""
    last = get_args(array)[-1]
    return (get_args(last) or (last,))[0]


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
            if value.flags.num & _USABLE != _USABLE:
                raise TypeError("expected a contiguous array, got one with gaps between its elements, or unaligned")
            words.append(id(value))
        elif isinstance(kind, tuple):
            words += _words(value, kind)
        elif kind == FLOAT:
            words += struct.unpack("Q", struct.pack("d", value))
        else:
            words.append(operator.index(value) & _WORD)
    return words


class _Compiled:
    """A function to be compiled, or loaded from the cache, when its address is needed."""

    def __init__(
        self, function: Callable[..., Any], types: tuple[Type, ...], entry: Callable[[Module, Definition, Any], None]
    ) -> None:
        keep_source(function)
        self._function, self._types, self._entry = function, types, entry
        self._lock = threading.Lock()
        self._engine: Any = None  # LLVM's owner of the code

    def address(self) -> int:
        with self._lock:
            if self._engine is None:
                key = f"{key_of(self._function)} {self._types} {_NumPyArray.shape.offset} {CHECKED}"
                self._engine = load(self._function.__name__.strip("_"), key, self._write, optimise=True)
        return int(self._engine.get_function_address(_ENTRY))

    def _write(self) -> str:
        module = Module()
        self._entry(module, module.define(self._function, self._types), self._types)
        return "\n".join(module.lines)


def _prefetch(writer: InstructionWriter, array: Array, index: Number) -> None:
    place = writer.value(f"getelementptr {array.element}, ptr {array.address}, i64 {index.name}")
    writer.emit(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")  # to read; into all caches; data


prefetch: Any = Intrinsic(_prefetch)
"""In kernels, `prefetch(array, index)`: begin to load the cache line of an element that will be read soon.

For elements scattered over more memory than the cache holds: request them in one loop and read them in the next, so
that the cache misses overlap. The array must have one dimension. An index out of bounds does nothing.
"""


def _multiply_add(writer: InstructionWriter, one: Number, other: Number, added: Number) -> Number:
    numbers = ", ".join(f"float {number.name}" for number in (one, other, added))
    return Number(writer.value(f"call float @llvm.fmuladd.f32({numbers})"), one.type)


multiply_add: Any = Intrinsic(_multiply_add)
"""In kernels, `multiply_add(a, b, c)`: a * b + c of float32, rounded once where the processor does that faster. So its
results may differ between processors."""


def _claim(writer: InstructionWriter, array: Array) -> Number:
    return Number(writer.value(f"atomicrmw add ptr {array.address}, i64 1 monotonic"), INT)


claim: Any = Intrinsic(_claim)
"""In kernels, `claim(array)`: the first number of an int64 array, which it increments. Several threads that call it get
different numbers."""


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
            case Number(name, kind):
                load(kind, name, "%words", 8 * next(words))

    if definition.result not in (None, INT):
        raise TypeError(f"a kernel returns an integer or nothing, not {definition.result}")
    arguments = named(types, parameter_names())
    unpack(arguments)
    call = f"call {result_type(definition)} @{definition.name}({', '.join(flat(arguments))})"
    lines += [f"  %result = {call}", "  ret i64 %result"] if definition.result else [f"  {call}", "  ret i64 0"]
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
