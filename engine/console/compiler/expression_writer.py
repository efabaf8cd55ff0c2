"""Writes expressions of a function as LLVM IR; see function_writer.py for what they may contain."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.console.compiler.function_source import Intrinsic, has_source
from engine.console.compiler.values import (
    ELEMENTS,
    FLOAT,
    FLOAT32,
    INT,
    Array,
    ArrayType,
    Definition,
    InstructionWriter,
    Number,
    Routine,
    Value,
    flat,
    result_type,
    type_of,
)

if TYPE_CHECKING:
    from engine.console.compiler.function_writer import Module

_DYNAMIC = object()
_CONVERSIONS: dict[Any, str] = {np.int64: INT, int: INT, np.float32: FLOAT32, np.float64: FLOAT, float: FLOAT}


class ExpressionWriter(InstructionWriter):
    """The expressions of one function. Each local number is in memory of its own, which LLVM turns into registers."""

    def __init__(self, module: Module, function: Callable[..., Any]) -> None:
        super().__init__(module, function)
        self._names: set[str] = set()  # local names
        self._values: dict[str, Value] = {}  # of the local names; a number is the address of its memory
        self._bound: set[str] = set()  # the local names that have a value here, whichever way leads here

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
            case ast.Constant(bool() | int() as value):
                self._jump(yes if value else no)
            case _:
                self._branch(self._flag(node), yes, no)

    def _flag(self, node: ast.expr) -> str:
        """Return whether a value is not 0, an i1."""
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

    # Expressions

    def integer(self, node: ast.expr) -> str:
        """The name of the value of an expression, an INT."""
        return self._int(node, self.expression(node))

    def expression(self, node: ast.expr) -> Value | None:
        """The value of an expression; None if it is a call of a function that returns nothing."""
        static = self._static(node)
        if static is not _DYNAMIC:
            return self._constant(node, static)
        match node:
            case ast.Name(name):
                if name not in self._bound or name not in self._values:
                    raise self._error(node, "a name that may have no value here")
                value = self._values[name]
                if isinstance(value, Number):
                    return Number(self.value(f"load {value.type}, ptr {value.name}"), value.type)
                return value
            case ast.Tuple(parts):
                return self._values_of(parts)
            case ast.BinOp(left, operation, right):
                return self._calculate(node, operation, self.expression(left), self.expression(right))
            case ast.UnaryOp(ast.USub(), operand):
                number = self._number(node, self.expression(operand))
                if number.type == INT:
                    return Number(self.value(f"sub i64 0, {number.name}"))
                return Number(self.value(f"fneg {number.type} {number.name}"), number.type)
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
            case ast.Attribute(base, name):
                return self._attribute(node, self.expression(base), name)
            case ast.Call():
                return self._call(node)
        raise self._error(node, "this expression")

    def _static(self, node: ast.expr) -> Any:
        """The value of an expression of constants and names outside the function; _DYNAMIC if it has local names."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name) if name not in self._names:
                for names in (self._function.__globals__, vars(builtins)):
                    if name in names:
                        return names[name]
                raise self._error(node, "an unknown name")
            case ast.Attribute(base, name) if (owner := self._static(base)) is not _DYNAMIC:
                return getattr(owner, name)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                return -number
        return _DYNAMIC

    def _constant(self, node: ast.AST, value: Any) -> Value:
        match value:
            case bool() | int() | np.integer():
                return Number(str(int(value)))
            case _ if isinstance(value, float | np.float32):  # LLVM writes both with the bits of a float64
                kind = FLOAT if isinstance(value, float) else FLOAT32
                return Number(f"0x{struct.pack('>d', value).hex()}", kind)
            case np.ndarray() if value.dtype.kind in "iub":
                return self._module.constant(value)
        raise self._error(node, "this constant")

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
        yes, no, end = self._new_label(), self._new_label(), self._new_label()
        place = kind = ""
        self._condition(test, yes, no)
        for label, part in ((yes, body), (no, otherwise)):
            self._label(label)
            number = self._number(part, self.expression(part))
            if not kind:
                place, kind = self._allocate(number.type), number.type
            elif number.type != kind:
                raise self._error(part, "another kind of value than before `if`, in")
            self.emit(f"store {kind} {number.name}, ptr {place}")
            self._jump(end)
        self._label(end)
        return Number(self.value(f"load {kind}, ptr {place}"), kind)

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

    def _attribute(self, node: ast.expr, whole: Value | None, name: str) -> Value:
        """A part of a named tuple, or the size or shape of an array."""
        match whole, name:
            case Array(), "size":
                return Number(self._size(whole))
            case Array(), "shape":
                return tuple(Number(size) for size in whole.shape)
            case tuple(), _ if name in getattr(whole, "_fields", ()):
                part: Value = getattr(whole, name)
                return part
        raise self._error(node, "this attribute")

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
                    bounds = ((start, end), (end, size))
                    self._check(node, "slice", *(f"icmp ule i64 {one}, {other}" for one, other in bounds))
                    shape = (self.value(f"sub i64 {end}, {start}"),)
                case ast.Slice():
                    raise self._error(node, "a slice with a step, or not of the last index")
                case index:
                    start = self.integer(index)
                    self._check(node, "index", f"icmp ult i64 {start}, {size}")
            offset = self.value(f"add i64 {offset}, {start}") if place else start
        address = self.value(f"getelementptr inbounds {array.element}, ptr {array.address}, i64 {offset}")
        return Array(ArrayType(array.type.dtype, len(shape)), address, shape)

    def _load(self, node: ast.AST, place: Array) -> Number:
        if place.shape:
            raise self._error(node, "a whole array as a number")
        loaded = self.value(f"load {place.element}, ptr {place.address}")
        if place.element in (INT, FLOAT, FLOAT32):
            return Number(loaded, place.element)
        extended = "sext" if place.type.dtype.kind == "i" else "zext"
        return Number(self.value(f"{extended} {place.element} {loaded} to i64"))

    def _store(self, node: ast.AST, place: Array, value: Value | None) -> None:
        if place.shape:
            raise self._error(node, "an assignment to a whole array")
        if place.element in (FLOAT, FLOAT32):
            word = self._converted(self._number(node, value), place.element).name
        else:
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
        """The same bytes as elements of another type; rows stay rows."""
        count = self.value(f"mul i64 {array.shape[-1]}, {array.type.dtype.itemsize}")
        size = self.value(f"udiv i64 {count}, {dtype.itemsize}")
        return Array(ArrayType(dtype, array.type.dimensions), array.address, (*array.shape[:-1], size))

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
        values = self._values_of(node.args)
        if function in (min, max):
            numbers = [self._number(node, value) for value in values]
            return functools.reduce(functools.partial(self._extreme, function.__name__), numbers)
        if function is len:
            return Number(self._array(node.args[0]).shape[0])
        if function is abs:
            return Number(self.value(f"call i64 @llvm.abs.i64(i64 {self._int(node, *values)}, i1 false)"))
        if function in _CONVERSIONS:
            return self._converted(self._number(node, *values), _CONVERSIONS[function])
        if isinstance(function, Intrinsic):
            return function.write(self, *values)
        if not has_source(called := inspect.unwrap(function)):
            raise self._error(node, "a call of what is not marked as a helper")
        definition = self._module.define(called, type_of(values))
        return self._call_address(f"@{definition.name}", values, definition)

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
                if type_of(values) != target.type.arguments:
                    raise self._error(node, "other types of arguments than in the routine's signature")
                address = self.value(f"inttoptr i64 {target.address} to ptr")
                return self._call_address(address, values, Definition("", None))
        raise self._error(node, "this call")

    def _extreme(self, name: str, one: Number, other: Number) -> Number:
        """`min` or `max`."""
        if one.type == other.type == INT:
            return Number(self.value(f"call i64 @llvm.s{name}.i64(i64 {one.name}, i64 {other.name})"))
        one, other = self._same_float(one, other)
        flag = self.value(f"fcmp {'olt' if name == 'min' else 'ogt'} {one.type} {other.name}, {one.name}")
        return Number(self.value(f"select i1 {flag}, {other.type} {other.name}, {one.type} {one.name}"), one.type)

    def _call_address(self, address: str, values: Value, definition: Definition) -> Value | None:
        call = f"call {result_type(definition)} {address}({', '.join(flat(values))})"
        match definition.result:
            case None:
                self.emit(call)
                return None
            case tuple() as kinds:
                whole, kind = self.value(call), result_type(definition)
                return tuple(
                    Number(self.value(f"extractvalue {kind} {whole}, {place}"), str(each))
                    for place, each in enumerate(kinds)
                )
            case kind:
                return Number(self.value(call), str(kind))

    def _values_of(self, nodes: Iterable[ast.expr]) -> tuple[Value, ...]:
        values = []
        for node in nodes:
            value = self.expression(node)
            if value is None:
                raise self._error(node, "an argument without a value")
            values.append(value)
        return tuple(values)
