"""Writes functions in a small part of Python as LLVM IR, in one pass over their syntax trees.

There is little to infer, because a value is an int64, a float64, a contiguous array of known type, or a tuple of such
values. What is written: numbers, arrays (elements, rows, and slices of the last index without a step), `if`, `while`,
`for` over `range`, calls of other such functions, and constants of the module.

All integers, also those read from an array of bytes, are int64 and wrap around; stores keep the low bits. Unlike in
Python, indices are not checked, a negative one does not count from the end, all parts of a comparison are evaluated,
and a name has values of one kind; that of an array is given only once. A function returns an integer or nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import struct
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

INT, FLOAT = "i64", "double"
ELEMENTS = {"int64": "i64", "int32": "i32", "uint16": "i16", "uint8": "i8", "bool": "i8"}
"""LLVM's type of an array's elements, by dtype."""
_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_FLOAT_OPERATORS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARISONS = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip
_DYNAMIC = object()


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
"""INT or FLOAT, an array, a routine, or a tuple of types."""


@dataclass(frozen=True)
class Number:
    """`name`: LLVM's name of the number, or its digits. type: INT or FLOAT."""

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
    """name: of an LLVM function. returns: whether it returns an INT."""

    name: str
    returns: bool


def result_type(definition: Definition) -> str:
    return INT if definition.returns else "void"


def parameters(types: tuple[Type, ...]) -> list[str]:
    """LLVM's parameters of a function with arguments of these types."""
    return list(flat(named(types, parameter_names())))


def parameter_names() -> Iterator[str]:
    return (f"%p{index}" for index in itertools.count())


def named(kind: Type, names: Iterator[str]) -> Any:
    """A value of a type, with the next names."""
    match kind:
        case tuple():
            return tuple(named(part, names) for part in kind)
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


def _type_of(value: Value) -> Any:
    return tuple(_type_of(part) for part in value) if isinstance(value, tuple) else value.type


class Intrinsic:
    """A function that writes LLVM IR itself: `write(writer, *values)` returns its value, if it has one."""

    def __init__(self, write: Callable[..., Value | None]) -> None:
        self.write = write

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError("only compiled functions can call this")


class Module:
    """An LLVM module with the functions that a kernel needs, each once for every combination of argument types."""

    def __init__(self) -> None:
        self.lines = [
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        ]
        self._definitions: dict[tuple[Callable[..., Any], Type], Definition] = {}
        self._constants: dict[int, Array] = {}

    def define(self, function: Callable[..., Any], types: tuple[Type, ...]) -> Definition:
        """Write a function if it isn't there yet."""
        if (function, types) not in self._definitions:
            name = f"{function.__name__}.{len(self._definitions)}"
            self._definitions[function, types] = Definition(name, False)  # its calls of others take the next numbers
            writer = Writer(self, function, types)
            definition = self._definitions[function, types] = Definition(name, writer.returns)
            self.lines += [
                f"define internal {result_type(definition)} @{name}({', '.join(parameters(types))}) nounwind {{",
                *writer.lines,
                "}",
            ]
        return self._definitions[function, types]

    def constant(self, array: NDArray[Any]) -> Array:
        """An array of the source's module, as it is now."""
        if id(array) not in self._constants:
            name, kind = f"@constant{len(self._constants)}", ArrayType(array.dtype, array.ndim)
            found = self._constants[id(array)] = Array(kind, name, tuple(map(str, array.shape)))
            numbers = ", ".join(f"{found.element} {int(number)}" for number in array.flat)
            self.lines.append(f"{name} = internal constant [{array.size} x {found.element}] [{numbers}]")
        return self._constants[id(array)]


class Writer:
    """Writes one function. Each local number is in memory of its own, which LLVM turns into registers."""

    def __init__(self, module: Module, function: Callable[..., Any], types: tuple[Type, ...]) -> None:
        self.lines: list[str] = []
        self.returns = False
        self._module, self._function = module, function
        self._allocated: list[str] = []
        self._values: dict[str, Value] = {}  # of the local names; a number is the address of its memory
        self._numbers = itertools.count()
        self._reachable = True
        self._loops: list[tuple[str, str]] = []  # labels for `continue` and `break`
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        self._names = {argument.arg for argument in tree.args.args}
        if len(types) != len(self._names):
            raise TypeError(f"{function.__qualname__} takes {len(self._names)} arguments, got {len(types)}")
        stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        self._names |= {node.id for node in stored}
        self._result = self._allocate(INT)
        for argument, value in zip(tree.args.args, named(types, parameter_names()), strict=True):
            self._bind(argument, argument.arg, value)
        self._block(tree.body)
        self._label("leave")
        self.emit(f"ret i64 {self.value(f'load i64, ptr {self._result}')}" if self.returns else "ret void")
        self.lines = self._allocated + self.lines

    # Instructions

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
        """Begin a block, into which the one before continues."""
        self._jump(name)
        self.lines.append(f"{name}:")
        self._reachable = True

    def _jump(self, name: str) -> None:
        self.emit(f"br label %{name}")
        self._reachable = False

    def _branch(self, flag: str, yes: str, no: str) -> None:
        self.emit(f"br i1 {flag}, label %{yes}, label %{no}")
        self._reachable = False

    def _allocate(self, kind: str) -> str:
        name = f"%m{next(self._numbers)}"
        self._allocated.append(f"  {name} = alloca {kind}")
        return name

    def _error(self, node: ast.AST, what: str) -> TypeError:
        code = self._function.__code__
        line = code.co_firstlineno + getattr(node, "lineno", 1) - 1
        return TypeError(f"{code.co_filename}:{line}: can't compile {what}: {ast.unparse(node)}")

    # Statements

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets, expression):
                value = self.expression(expression)
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign(ast.Name() as target, operation, expression):
                old = self.expression(target)
                self._assign(target, self._calculate(node, operation, old, self.expression(expression)))
            case ast.AugAssign(ast.Subscript() as target, operation, expression):
                place = self._select(target, self.expression(target.value))
                old = self._load(target, place)
                self._store(target, place, self._calculate(node, operation, old, self.expression(expression)))
            case ast.Expr(ast.Constant()) | ast.Pass():  # docstring
                pass
            case ast.Expr(expression):
                self.expression(expression)
            case ast.If(test, body, otherwise):
                yes, no, end = self._new_label(), self._new_label(), self._new_label()
                self._condition(test, yes, no)
                for label, statements in ((yes, body), (no, otherwise)):
                    self._label(label)
                    self._block(statements)
                    self._jump(end)
                self._label(end)
            case ast.While(test, body, []):
                again, inside, end = self._new_label(), self._new_label(), self._new_label()
                self._label(again)
                self._condition(test, inside, end)
                self._loop(body, inside, again, end)
                self._jump(again)
                self._label(end)
            case ast.For(ast.Name() as target, ast.Call(ast.Name("range"), arguments), body, []):
                self._for(target, arguments, body)
            case ast.Return(expression):
                if expression is not None:
                    self.returns = True
                    self.emit(f"store i64 {self.integer(expression)}, ptr {self._result}")
                self._jump("leave")
            case ast.Continue():
                self._jump(self._loops[-1][0])
            case ast.Break():
                self._jump(self._loops[-1][1])
            case _:
                raise self._error(node, "this statement")

    def _loop(self, body: Iterable[ast.stmt], inside: str, again: str, end: str) -> None:
        self._loops.append((again, end))
        self._label(inside)
        self._block(body)
        self._loops.pop()

    def _for(self, target: ast.Name, arguments: Sequence[ast.expr], body: Iterable[ast.stmt]) -> None:
        """A loop over a range with a constant step."""
        bounds = arguments if len(arguments) > 1 else [ast.Constant(0), *arguments]
        step = self._static(bounds[2]) if len(bounds) == 3 else 1
        if not isinstance(step, int):
            raise self._error(target, "a range with a variable step")
        start, stop = (self.integer(bound) for bound in bounds[:2])
        test, inside, again, end = (self._new_label() for _ in range(4))
        counter = self._allocate(INT)
        self.emit(f"store i64 {start}, ptr {counter}")
        self._label(test)
        count = self.value(f"load i64, ptr {counter}")
        self._branch(self.value(f"icmp {'slt' if step > 0 else 'sgt'} i64 {count}, {stop}"), inside, end)
        self._label(inside)
        self._assign(target, Number(count))
        self._loop(body, self._new_label(), again, end)
        self._label(again)
        following = self.value(f"add nsw i64 {self.value(f'load i64, ptr {counter}')}, {step}")
        self.emit(f"store i64 {following}, ptr {counter}")
        self._jump(test)
        self._label(end)

    def _assign(self, target: ast.expr, value: Value | None) -> None:
        match target, value:
            case ast.Tuple(targets), tuple() if len(targets) == len(value):
                for each, part in zip(targets, value, strict=True):
                    self._assign(each, part)
            case ast.Name(name), Number() if name in self._values:
                place = self._values[name]
                if not isinstance(place, Number) or place.type != value.type:
                    raise self._error(target, f"values of two kinds with the name {name}")
                self.emit(f"store {value.type} {value.name}, ptr {place.name}")
            case ast.Name(name), Number() | Array() | Routine() | tuple():
                self._bind(target, name, value)
            case ast.Subscript(), Number():
                self._store(target, self._select(target, self.expression(target.value)), value)
            case _:
                raise self._error(target, "the assignment to this")

    def _bind(self, node: ast.AST, name: str, value: Value) -> None:
        """Give a local name its first value. It keeps an array, whose address is then known wherever it is used."""
        if name in self._values:
            raise self._error(node, f"a second array with the name {name}")
        if isinstance(value, Number):
            place = self._allocate(value.type)
            self.emit(f"store {value.type} {value.name}, ptr {place}")
            value = Number(place, value.type)
        self._values[name] = value

    # Conditions

    def _condition(self, node: ast.expr, yes: str, no: str) -> None:
        """Jump to one of two labels."""
        match node:
            case ast.BoolOp(operation, parts):
                for part in parts[:-1]:
                    following = self._new_label()
                    self._condition(part, *((following, no) if isinstance(operation, ast.And) else (yes, following)))
                    self._label(following)
                self._condition(parts[-1], yes, no)
            case ast.UnaryOp(ast.Not(), operand):
                self._condition(operand, no, yes)
            case _:
                self._branch(self._flag(node), yes, no)

    def _flag(self, node: ast.expr) -> str:
        """Whether a value is not 0, an i1."""
        match node:
            case ast.Compare(first, [ast.In()], [ast.Tuple(parts)]):
                value = self.expression(first)
                flags = [self._compare(node, ast.Eq(), value, self.expression(part)) for part in parts]
                return functools.reduce(lambda one, other: self.value(f"or i1 {one}, {other}"), flags)
            case ast.Compare(first, operations, others):
                pairs = itertools.pairwise([self.expression(part) for part in (first, *others)])
                flags = [self._compare(node, sign, *pair) for sign, pair in zip(operations, pairs, strict=True)]
                return functools.reduce(lambda one, other: self.value(f"and i1 {one}, {other}"), flags)
            case ast.UnaryOp(ast.Not(), operand):
                return self.value(f"xor i1 {self._flag(operand)}, 1")
        return self.value(f"icmp ne i64 {self.integer(node)}, 0")

    def _compare(self, node: ast.expr, operation: ast.cmpop, one: Value | None, other: Value | None) -> str:
        if type(operation) not in _COMPARISONS:
            raise self._error(node, "this comparison")
        return self.value(f"icmp {_COMPARISONS[type(operation)]} i64 {self._int(node, one)}, {self._int(node, other)}")

    # Expressions

    def integer(self, node: ast.expr) -> str:
        """The name of the value of an expression, an INT."""
        return self._int(node, self.expression(node))

    def _int(self, node: ast.AST, value: Value | None) -> str:
        if not isinstance(value, Number) or value.type != INT:
            raise self._error(node, "what is not an integer")
        return value.name

    def expression(self, node: ast.expr) -> Value | None:
        """The value of an expression; None if it is a call of a function that returns nothing."""
        static = self._static(node)
        if static is not _DYNAMIC:
            return self._constant(node, static)
        match node:
            case ast.Name(name):
                if name not in self._values:
                    raise self._error(node, "a name without a value")
                value = self._values[name]
                if isinstance(value, Number):
                    return Number(self.value(f"load {value.type}, ptr {value.name}"), value.type)
                return value
            case ast.Tuple(parts):
                return self._values_of(parts)
            case ast.BinOp(left, operation, right):
                return self._calculate(node, operation, self.expression(left), self.expression(right))
            case ast.UnaryOp(ast.USub(), operand):
                return self._calculate(node, ast.Sub(), Number("0"), self.expression(operand))
            case ast.UnaryOp(ast.Invert(), operand):
                return self._calculate(node, ast.BitXor(), self.expression(operand), Number("-1"))
            case ast.Compare() | ast.UnaryOp(ast.Not()):
                return Number(self.value(f"zext i1 {self._flag(node)} to i64"))
            case ast.BoolOp(operation, parts):
                return self._choose(parts, isinstance(operation, ast.And))
            case ast.IfExp(test, body, otherwise):
                return self._if(test, body, otherwise)
            case ast.Subscript():
                return self._item(node)
            case ast.Attribute(base, "size" | "shape" as name):
                array = self._array(base)
                return Number(self._size(array)) if name == "size" else tuple(Number(size) for size in array.shape)
            case ast.Call():
                return self._call(node)
        raise self._error(node, "this expression")

    def _static(self, node: ast.expr) -> Any:
        """The value of an expression of constants and names outside the function; _DYNAMIC if it has local names."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name) if name not in self._names:
                names = self._function.__globals__
                return names[name] if name in names else getattr(builtins, name)
            case ast.Attribute(base, name) if (owner := self._static(base)) is not _DYNAMIC:
                return getattr(owner, name)
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
                return -number
        return _DYNAMIC

    def _constant(self, node: ast.AST, value: Any) -> Value:
        match value:
            case bool() | int() | np.integer():
                return Number(str(int(value)))
            case float():
                return Number(f"0x{struct.pack('>d', value).hex()}", FLOAT)
            case np.ndarray():
                return self._module.constant(value)
        raise self._error(node, "this constant")

    def _calculate(self, node: ast.AST, operation: ast.operator, left: Value | None, right: Value | None) -> Number:
        if not isinstance(left, Number) or not isinstance(right, Number):
            raise self._error(node, "arithmetic with what is not a number")
        if FLOAT in (left.type, right.type) or isinstance(operation, ast.Div):
            if type(operation) not in _FLOAT_OPERATORS:
                raise self._error(node, "this operation with a float")
            one, other = self._float(left), self._float(right)
            return Number(self.value(f"{_FLOAT_OPERATORS[type(operation)]} double {one}, {other}"), FLOAT)
        if type(operation) in _OPERATORS:
            return Number(self.value(f"{_OPERATORS[type(operation)]} i64 {left.name}, {right.name}"))
        if isinstance(operation, (ast.FloorDiv, ast.Mod)):
            return Number(self._divide(left.name, right.name, rest=isinstance(operation, ast.Mod)))
        raise self._error(node, "this operation")

    def _float(self, number: Number) -> str:
        return number.name if number.type == FLOAT else self.value(f"sitofp i64 {number.name} to double")

    def _divide(self, left: str, right: str, *, rest: bool) -> str:
        """Python's quotient, rounded down, or the rest, which has the sign of `right`."""
        remainder = self.value(f"srem i64 {left}, {right}")
        signs_differ = self.value(f"icmp slt i64 {self.value(f'xor i64 {remainder}, {right}')}, 0")
        adjust = self.value(f"and i1 {signs_differ}, {self.value(f'icmp ne i64 {remainder}, 0')}")
        if rest:
            return self.value(f"add i64 {remainder}, {self.value(f'select i1 {adjust}, i64 {right}, i64 0')}")
        quotient = self.value(f"sdiv i64 {left}, {right}")
        return self.value(f"sub i64 {quotient}, {self.value(f'zext i1 {adjust} to i64')}")

    def _choose(self, parts: Sequence[ast.expr], conjunction: bool) -> Number:
        """The value of `and` or `or`: that of the last part that is evaluated."""
        place, end = self._allocate(INT), self._new_label()
        for part in parts:
            value, following = self.integer(part), self._new_label()
            self.emit(f"store i64 {value}, ptr {place}")
            flag = self.value(f"icmp {'ne' if conjunction else 'eq'} i64 {value}, 0")
            self._branch(flag, following, end)
            self._label(following)
        self._label(end)
        return Number(self.value(f"load i64, ptr {place}"))

    def _if(self, test: ast.expr, body: ast.expr, otherwise: ast.expr) -> Number:
        place, yes, no, end = self._allocate(INT), self._new_label(), self._new_label(), self._new_label()
        self._condition(test, yes, no)
        for label, part in ((yes, body), (no, otherwise)):
            self._label(label)
            self.emit(f"store i64 {self.integer(part)}, ptr {place}")
            self._jump(end)
        self._label(end)
        return Number(self.value(f"load i64, ptr {place}"))

    # Arrays

    def _item(self, node: ast.Subscript) -> Value:
        """An item of a tuple, or a part of an array."""
        whole = self.expression(node.value)
        if isinstance(whole, tuple):
            index = self._static(node.slice)
            if not isinstance(index, int):
                raise self._error(node, "a variable index of a tuple")
            return whole[index]
        part = self._select(node, whole)
        return part if part.shape else self._load(node, part)

    def _array(self, node: ast.expr) -> Array:
        value = self.expression(node)
        if not isinstance(value, Array):
            raise self._error(node, "what is not an array")
        return value

    def _size(self, array: Array) -> str:
        return functools.reduce(lambda one, other: self.value(f"mul i64 {one}, {other}"), array.shape)

    def _select(self, node: ast.Subscript, array: Value | None) -> Array:
        """A part of an array; an element is an array without dimensions."""
        if not isinstance(array, Array):
            raise self._error(node, "an index of what is not an array")
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indices) > len(array.shape):
            raise self._error(node, "too many indices")
        shape = array.shape[len(indices) :]
        offset = "0"
        for place, size in enumerate(array.shape):
            if place:
                offset = self.value(f"mul i64 {offset}, {size}")
            match indices[place] if place < len(indices) else None:
                case None:
                    continue
                case ast.Slice(lower, upper, None) if place == len(array.shape) - 1:
                    start = self.integer(lower) if lower else "0"
                    end = self.integer(upper) if upper else size
                    shape = (self.value(f"sub i64 {end}, {start}"),)
                case ast.Slice():
                    raise self._error(node, "a slice with a step, or not of the last index")
                case index:
                    start = self.integer(index)
            offset = self.value(f"add i64 {offset}, {start}") if place else start
        address = self.value(f"getelementptr inbounds {array.element}, ptr {array.address}, i64 {offset}")
        return Array(ArrayType(array.type.dtype, len(shape)), address, shape)

    def _load(self, node: ast.AST, place: Array) -> Number:
        if place.shape:
            raise self._error(node, "a whole array as a number")
        loaded = self.value(f"load {place.element}, ptr {place.address}")
        if place.element == INT:
            return Number(loaded)
        extended = "sext" if place.type.dtype.kind == "i" else "zext"
        return Number(self.value(f"{extended} {place.element} {loaded} to i64"))

    def _store(self, node: ast.AST, place: Array, value: Value | None) -> None:
        if place.shape:
            raise self._error(node, "an assignment to a whole array")
        word = self._int(node, value)
        if place.element != INT:
            word = self.value(f"trunc i64 {word} to {place.element}")
        self.emit(f"store {place.element} {word}, ptr {place.address}")

    def _new_array(self, size: str, dtype: np.dtype[Any], *, clear: bool) -> Array:
        """A local array, which ends with the function; not for use in a loop."""
        address = self.value(f"alloca {ELEMENTS[dtype.name]}, i64 {size}, align 64")
        if clear:
            count = self.value(f"mul i64 {size}, {dtype.itemsize}")
            self.emit(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {count}, i1 false)")
        return Array(ArrayType(dtype, 1), address, (size,))

    def _viewed(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """The same bytes as elements of another type."""
        count = self.value(f"mul i64 {self._size(array)}, {array.type.dtype.itemsize}")
        size = self.value(f"udiv i64 {count}, {dtype.itemsize}")
        return Array(ArrayType(dtype, 1), array.address, (size,))

    # Calls

    def _call(self, node: ast.Call) -> Value | None:
        if node.keywords:
            raise self._error(node, "arguments with names")
        function = self._static(node.func)
        if function is _DYNAMIC:
            return self._call_local(node)
        if function in (np.empty, np.zeros):
            size, dtype = node.args
            return self._new_array(self.integer(size), np.dtype(self._static(dtype)), clear=function is np.zeros)
        if function in (min, max):
            numbers = [self.integer(argument) for argument in node.args]
            name = f"@llvm.s{function.__name__}.i64"
            return Number(functools.reduce(lambda a, b: self.value(f"call i64 {name}(i64 {a}, i64 {b})"), numbers))
        values = self._values_of(node.args)
        if function in (np.int64, int):
            return self._truncated(node, *values)
        if isinstance(function, Intrinsic):
            return function.write(self, *values)
        definition = self._module.define(inspect.unwrap(function), _type_of(values))
        return self._call_address(f"@{definition.name}", values, returns=definition.returns)

    def _call_local(self, node: ast.Call) -> Value | None:
        """A call of a routine, or of a method of an array."""
        match node:
            case ast.Call(ast.Attribute(base, "reshape"), [ast.UnaryOp(ast.USub(), ast.Constant(1))]):
                array = self._array(base)
                return Array(ArrayType(array.type.dtype, 1), array.address, (self._size(array),))
            case ast.Call(ast.Attribute(base, "view"), [dtype]):
                return self._viewed(self._array(base), np.dtype(self._static(dtype)))
            case ast.Call(ast.Name() as name, arguments) if isinstance(target := self.expression(name), Routine):
                values = self._values_of(arguments)
                if _type_of(values) != target.type.arguments:
                    raise self._error(node, "other types of arguments than in the routine's signature")
                return self._call_address(self.value(f"inttoptr i64 {target.address} to ptr"), values, returns=False)
        raise self._error(node, "this call")

    def _call_address(self, address: str, values: Value, *, returns: bool) -> Number | None:
        call = f"{address}({', '.join(flat(values))})"
        if returns:
            return Number(self.value(f"call i64 {call}"))
        self.emit(f"call void {call}")
        return None

    def _values_of(self, nodes: Iterable[ast.expr]) -> tuple[Value, ...]:
        values = []
        for node in nodes:
            value = self.expression(node)
            if value is None:
                raise self._error(node, "an argument without a value")
            values.append(value)
        return tuple(values)

    def _truncated(self, node: ast.AST, value: Value) -> Number:
        if isinstance(value, Number) and value.type == FLOAT:
            return Number(self.value(f"fptosi double {value.name} to i64"))
        return Number(self._int(node, value))
