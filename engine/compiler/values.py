"""Types and values of functions that are written as LLVM IR (function_writer.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

INT, FLOAT, FLOAT32 = "i64", "double", "float"
ELEMENTS = {
    "int64": INT, "int32": "i32", "uint16": "i16", "int16": "i16", "uint8": "i8", "bool": "i8", "float64": FLOAT,
    "float32": FLOAT32,
}  # fmt: skip
"""LLVM's type of an array's elements, by dtype."""


@dataclass(frozen=True)
class ArrayType:
    """A contiguous array."""

    dtype: np.dtype[Any]
    dimensions: int


@dataclass(frozen=True)
class RoutineType:
    """The address of a `routine`, which takes `arguments` and returns nothing."""

    arguments: tuple[Type, ...]


Type: TypeAlias = "str | ArrayType | RoutineType | tuple[Type, ...]"
"""INT, FLOAT or FLOAT32, an array, a routine, or a tuple of types, which can be a named one."""


@dataclass(frozen=True)
class Number:
    """`name`: LLVM's name of the number, or its digits. type: INT, FLOAT or FLOAT32."""

    name: str
    type: str = INT


@dataclass(frozen=True)
class Array:
    """LLVM's names of the address and the dimensions of an array."""

    type: ArrayType
    address: str
    shape: tuple[str, ...]

    @property
    def element(self) -> str:
        return ELEMENTS[self.type.dtype.name]


@dataclass(frozen=True)
class Routine:
    """LLVM's name of the address of a routine, an INT."""

    type: RoutineType
    address: str


Value: TypeAlias = "Number | Array | Routine | tuple[Value, ...]"


@dataclass(frozen=True)
class Definition:
    """name: of an LLVM function. result: what it returns, a number or a tuple of numbers; None for nothing."""

    name: str
    result: Type | None


def result_type(definition: Definition) -> str:
    """LLVM's type of a result: that of the number, or a structure of the numbers."""
    match definition.result:
        case None:
            return "void"
        case tuple() as parts:
            return f"{{ {', '.join(map(str, parts))} }}"
        case kind:
            return str(kind)


def parameters(types: tuple[Type, ...]) -> list[str]:
    """LLVM's parameters of a function with arguments of these types."""
    return list(flat(named(types, parameter_names())))


def parameter_names() -> Iterator[str]:
    return (f"%p{index}" for index in itertools.count())


def named(kind: Type, names: Iterator[str]) -> Any:
    """A value of a type, with the next names."""
    match kind:
        case tuple():
            return like(kind, (named(part, names) for part in kind))
        case ArrayType():
            return Array(kind, next(names), tuple(next(names) for _ in range(kind.dimensions)))
        case RoutineType():
            return Routine(kind, next(names))
        case _:
            return Number(next(names), kind)


def flat(value: Value) -> Iterator[str]:
    """A value as arguments of an LLVM function."""
    match value:
        case tuple():
            for part in value:
                yield from flat(part)
        case Array():
            yield f"ptr {value.address}"
            yield from (f"i64 {size}" for size in value.shape)
        case Routine():
            yield f"i64 {value.address}"
        case _:
            yield f"{value.type} {value.name}"


def type_of(value: Value) -> Any:
    return like(value, map(type_of, value)) if isinstance(value, tuple) else value.type


def like(whole: tuple[Any, ...], parts: Iterable[Any]) -> Any:
    """A tuple of `parts`, with the names of `whole` if that is a named one."""
    return whole._make(parts) if hasattr(whole, "_make") else tuple(parts)


class Intrinsic:
    """A function that writes LLVM IR itself: `write(writer, *values)` returns its value, if it has one."""

    def __init__(self, write: Callable[..., Value | None]) -> None:
        self.write = write

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError("only compiled functions can call this")
