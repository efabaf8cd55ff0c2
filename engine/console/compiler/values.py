"""Types and values of functions that are written as LLVM IR (function_writer.py), and the instructions on them: jumps,
memory of local numbers, arithmetic, comparisons.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from engine.console.compiler.function_writer import Module


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


CHECKED = os.environ.get("MARIO_TUI_CHECKED", "0") not in ("", "0")
"""Whether indices, divisors and shifts are checked. One that is wrong ends the process with a line that names it."""

_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_FLOAT_OPERATORS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARISONS = {
    ast.Eq: ("eq", "oeq"), ast.NotEq: ("ne", "une"), ast.Lt: ("slt", "olt"), ast.LtE: ("sle", "ole"),
    ast.Gt: ("sgt", "ogt"), ast.GtE: ("sge", "oge"),
}  # fmt: skip
"""Of integers, and of floats."""


class InstructionWriter:
    """The instructions of one function."""

    def __init__(self, module: Module, function: Callable[..., Any]) -> None:
        self._module = module
        self.lines: list[str] = []
        self._function = function
        self._allocated: list[str] = []
        self._numbers = itertools.count()
        self._reachable = True
        self._targets: set[str] = set()  # labels of jumps that can be reached

    def emit(self, line: str) -> None:
        """Add an instruction; one that can't be reached is left out."""
        if self._reachable:
            self.lines.append(f"  {line}")

    def value(self, instruction: str) -> str:
        """Add an instruction with a value; returns its name."""
        name = f"%v{next(self._numbers)}"
        self.emit(f"{name} = {instruction}")
        return name

    def _new_label(self) -> str:
        return f"at{next(self._numbers)}"

    def _label(self, name: str) -> None:
        """Begin a block, into which the one before continues. If nothing leads there, what follows is left out."""
        self._jump(name)
        if name in self._targets:
            self.lines.append(f"{name}:")
            self._reachable = True

    def _jump(self, name: str) -> None:
        self._leave(f"br label %{name}", name)

    def _branch(self, flag: str, yes: str, no: str) -> None:
        self._leave(f"br i1 {flag}, label %{yes}, label %{no}", yes, no)

    def _leave(self, instruction: str, *targets: str) -> None:
        self.emit(instruction)
        if self._reachable:
            self._targets.update(targets)
        self._reachable = False

    def _allocate(self, kind: str) -> str:
        name = f"%m{next(self._numbers)}"
        self._allocated.append(f"  {name} = alloca {kind}")
        return name

    def _error(self, node: ast.AST, what: str) -> TypeError:
        code = self._function.__code__
        line = getattr(node, "lineno", code.co_firstlineno)
        return TypeError(f"{code.co_filename}:{line}: can't compile {what}: {ast.unparse(node).splitlines()[0]}")

    def _check(self, node: ast.AST, what: str, *conditions: str) -> None:
        """In the checked mode: end the process unless all of these instructions, each of an i1, give 1."""
        if not CHECKED:
            return
        message = str(self._error(node, what)).replace("can't compile", "wrong") + "\n"
        fine, wrong = self._new_label(), self._new_label()
        flags = [self.value(condition) for condition in conditions]
        self._branch(functools.reduce(lambda one, other: self.value(f"and i1 {one}, {other}"), flags), fine, wrong)
        self._label(wrong)
        self.emit(f"call i64 @write(i32 2, ptr {self._module.text(message)}, i64 {len(message.encode())})")
        self.emit("call void @abort()")
        self._leave("unreachable")
        self._label(fine)

    # Numbers

    def _int(self, node: ast.AST, value: Value | None) -> str:
        if not isinstance(value, Number) or value.type != INT:
            raise self._error(node, "what is not an integer")
        return value.name

    def _number(self, node: ast.AST, value: Value | None) -> Number:
        if not isinstance(value, Number):
            raise self._error(node, "what is not a number")
        return value

    def _compare(self, node: ast.expr, operation: ast.cmpop, one: Value | None, other: Value | None) -> str:
        if type(operation) not in _COMPARISONS:
            raise self._error(node, "this comparison")
        of_integers, of_floats = _COMPARISONS[type(operation)]
        left, right = self._number(node, one), self._number(node, other)
        if left.type == right.type == INT:
            return self.value(f"icmp {of_integers} i64 {left.name}, {right.name}")
        left, right = self._same_float(left, right)
        return self.value(f"fcmp {of_floats} {left.type} {left.name}, {right.name}")

    def _calculate(self, node: ast.AST, operation: ast.operator, one: Value | None, other: Value | None) -> Number:
        left, right = self._number(node, one), self._number(node, other)
        if not left.type == right.type == INT or isinstance(operation, ast.Div):
            if type(operation) not in _FLOAT_OPERATORS:
                raise self._error(node, "this operation with a float")
            left, right = self._same_float(left, right)
            if isinstance(operation, ast.Div):
                self._check(node, "divisor", f"fcmp une {right.type} {right.name}, 0.0")
            operands = f"{left.type} {left.name}, {right.name}"
            return Number(self.value(f"{_FLOAT_OPERATORS[type(operation)]} {operands}"), left.type)
        if isinstance(operation, ast.LShift | ast.RShift):
            self._check(node, "shift", f"icmp ult i64 {right.name}, 64")
        if type(operation) in _OPERATORS:
            return Number(self.value(f"{_OPERATORS[type(operation)]} i64 {left.name}, {right.name}"))
        if isinstance(operation, (ast.FloorDiv, ast.Mod)):
            self._check(node, "divisor", f"icmp ne i64 {right.name}, 0")
            return Number(self._divide(left.name, right.name, rest=isinstance(operation, ast.Mod)))
        raise self._error(node, "this operation")

    def _same_float(self, left: Number, right: Number) -> tuple[Number, Number]:
        """Both as float32 if both are float32, otherwise as float64, like NumPy's scalars of int64 and float32."""
        kind = FLOAT32 if left.type == right.type == FLOAT32 else FLOAT
        return self._converted(left, kind), self._converted(right, kind)

    def _converted(self, number: Number, kind: str) -> Number:
        """A number as one of another type; a float is truncated to an INT."""
        if number.type == kind:
            return number
        match number.type, kind:
            case str(), "i64":
                conversion = "fptosi"
            case "i64", str():
                conversion = "sitofp"
            case _:
                conversion = "fpext" if kind == FLOAT else "fptrunc"
        return Number(self.value(f"{conversion} {number.type} {number.name} to {kind}"), kind)

    def _divide(self, left: str, right: str, *, rest: bool) -> str:
        """Python's quotient, rounded down, or the rest, which has the sign of `right`."""
        remainder = self.value(f"srem i64 {left}, {right}")
        signs_differ = self.value(f"icmp slt i64 {self.value(f'xor i64 {remainder}, {right}')}, 0")
        adjust = self.value(f"and i1 {signs_differ}, {self.value(f'icmp ne i64 {remainder}, 0')}")
        if rest:
            return self.value(f"add i64 {remainder}, {self.value(f'select i1 {adjust}, i64 {right}, i64 0')}")
        quotient = self.value(f"sdiv i64 {left}, {right}")
        return self.value(f"sub i64 {quotient}, {self.value(f'zext i1 {adjust} to i64')}")
