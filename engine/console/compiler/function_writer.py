"""Writes functions in a small part of Python as LLVM IR, in one pass over their syntax trees.

There is little to infer, because a value is an int64, a float64, a float32, a contiguous array of known type, or a
tuple of such values, which can be a named one. What is written: numbers, arrays (elements, rows, and slices of the last
index without a step), `if`, `while`, `for` over `range`, calls of other such functions, and constants of the module.

All integers, also those read from an array of bytes, are int64 and wrap around; stores keep the low bits. Unlike in
Python, indices are not checked, a negative one does not count from the end, all parts of a comparison are evaluated,
and a name has values of one kind; that of an array is given only once. A function returns a number, a tuple of numbers,
or nothing. Arithmetic of two float32 gives a float32, that of any other float a float64; a stored number takes the type
of the array, but a float must be made an integer first.
What Python would find out only when it runs, a name without a value or a missing `return`, is an error here.
With `MARIO_TUI_CHECKED=1` indices, divisors and shifts are checked, and a wrong one ends the process with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from engine.console.compiler.expression_writer import ExpressionWriter
from engine.console.compiler.function_source import syntax_tree
from engine.console.compiler.values import (
    INT,
    Array,
    ArrayType,
    Definition,
    Number,
    Routine,
    Type,
    Value,
    named,
    parameter_names,
    parameters,
    result_type,
)


class Module:
    """An LLVM module with the functions that a kernel needs, each once for every combination of argument types."""

    def __init__(self) -> None:
        self.lines = [
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
            "declare i64 @llvm.abs.i64(i64, i1)",
            "declare float @llvm.fmuladd.f32(float, float, float)",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "declare i64 @write(i32, ptr, i64)",
            "declare void @abort() noreturn",
        ]
        self._definitions: dict[tuple[Callable[..., Any], Type], Definition | None] = {}  # None while it is written
        self._constants: dict[int, Array] = {}

    def define(self, function: Callable[..., Any], types: tuple[Type, ...]) -> Definition:
        """Write a function if it isn't there yet."""
        if (function, types) not in self._definitions:
            name = f"{function.__name__}.{len(self._definitions)}"
            self._definitions[function, types] = None  # its calls of others take the next numbers
            writer = Writer(self, function, types)
            definition = self._definitions[function, types] = Definition(name, writer.result)
            self.lines += [
                f"define internal {result_type(definition)} @{name}({', '.join(parameters(types))}) nounwind {{",
                *writer.lines,
                "}",
            ]
        if (found := self._definitions[function, types]) is None:
            raise TypeError(f"{function.__qualname__} calls itself, which can't be compiled")
        return found

    def text(self, text: str) -> str:
        """The name of a text's address."""
        name, bytes_ = f"@text{len(self.lines)}", text.encode()
        escaped = "".join(f"\\{byte:02X}" for byte in bytes_)
        self.lines.append(f'{name} = internal constant [{len(bytes_)} x i8] c"{escaped}"')
        return name

    def constant(self, array: NDArray[Any]) -> Array:
        """An array of the source's module, as it is now."""
        if id(array) not in self._constants:
            name, kind = f"@constant{len(self._constants)}", ArrayType(array.dtype, array.ndim)
            found = self._constants[id(array)] = Array(kind, name, tuple(map(str, array.shape)))
            numbers = ", ".join(f"{found.element} {int(number)}" for number in array.flat)
            self.lines.append(f"{name} = internal constant [{array.size} x {found.element}] [{numbers}]")
        return self._constants[id(array)]


class _Loop(NamedTuple):
    """again, end: the labels for `continue` and `break`. ways: the names bound on each way to the end."""

    again: str
    end: str
    ways: list[set[str]]


class Writer(ExpressionWriter):
    """Writes one function."""

    def __init__(self, module: Module, function: Callable[..., Any], types: tuple[Type, ...]) -> None:
        super().__init__(module, function)
        self.result: Type | None = None
        self._results: list[str] = []  # where the numbers of the result are kept
        self._can_return_nothing = False
        self._loops: list[_Loop] = []
        tree = syntax_tree(function)
        self._names = {argument.arg for argument in tree.args.args}
        plain = ast.arguments([], tree.args.args, None, [], [], None, tree.args.defaults)
        if ast.dump(tree.args) != ast.dump(plain):
            raise self._error(tree.args, "other parameters than plain ones")
        if outer := function.__code__.co_freevars:
            raise self._error(tree, f"the name {outer[0]} of an outer function, in")
        if len(types) != len(self._names):
            raise TypeError(f"{function.__qualname__} takes {len(self._names)} arguments, got {len(types)}")
        stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        self._names |= {node.id for node in stored}
        for argument, value in zip(tree.args.args, named(types, parameter_names()), strict=True):
            self._bind(argument, argument.arg, value)
        self._block(tree.body)
        self._can_return_nothing |= self._reachable
        if self._results and self._can_return_nothing:
            raise self._error(tree, "a value that is returned only on some ways through")
        self._label("leave")
        self._leave_function()
        self.lines = self._allocated + self.lines

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
                before, ways = self._bound, list[set[str]]()
                for label, statements in ((yes, body), (no, otherwise)):
                    self._label(label)
                    self._bound = set(before)
                    self._block(statements)
                    if self._reachable:
                        ways.append(self._bound)
                    self._jump(end)
                self._label(end)
                self._join(ways)
            case ast.While(test, body, []):
                again, inside, end = self._new_label(), self._new_label(), self._new_label()
                self._label(again)
                self._condition(test, inside, end)
                ways = [set(self._bound)] if end in self._targets else []
                self._label(inside)
                self._loop(body, again, end, ways)
                self._jump(again)
                self._label(end)
                self._join(ways)
            case ast.For(ast.Name() as target, ast.Call(ast.Name("range"), arguments), body, []):
                self._for(target, arguments, body)
            case ast.Return(expression):
                if expression is not None:
                    self._return(node, self.expression(expression))
                else:
                    self._can_return_nothing |= self._reachable
                self._jump("leave")
            case ast.Continue():
                self._jump(self._loops[-1].again)
            case ast.Break():
                if self._reachable:
                    self._loops[-1].ways.append(set(self._bound))
                self._jump(self._loops[-1].end)
            case _:
                raise self._error(node, "this statement")

    def _return(self, node: ast.AST, value: Value | None) -> None:
        """Keep the numbers of a result until the end of the function."""
        numbers = [self._number(node, part) for part in (value if isinstance(value, tuple) else (value,))]
        kinds = [number.type for number in numbers]
        kind: Type = tuple(kinds) if isinstance(value, tuple) else kinds[0]
        if self.result is None:
            self.result, self._results = kind, [self._allocate(each) for each in kinds]
        elif self.result != kind:
            raise self._error(node, "results of two kinds")
        for number, place in zip(numbers, self._results, strict=True):
            self.emit(f"store {number.type} {number.name}, ptr {place}")

    def _leave_function(self) -> None:
        match self.result:
            case None:
                self.emit("ret void")
            case tuple() as kinds:
                whole, kind = "undef", result_type(Definition("", self.result))
                for index, (each, place) in enumerate(zip(kinds, self._results, strict=True)):
                    number = self.value(f"load {each}, ptr {place}")
                    whole = self.value(f"insertvalue {kind} {whole}, {each} {number}, {index}")
                self.emit(f"ret {kind} {whole}")
            case kind:
                self.emit(f"ret {kind} {self.value(f'load {kind}, ptr {self._results[0]}')}")

    def _loop(self, body: Iterable[ast.stmt], again: str, end: str, ways: list[set[str]]) -> None:
        """The body of a loop. ways: for `_join` at the end, to which those of `break` are added."""
        self._loops.append(_Loop(again, end, ways))
        self._block(body)
        self._loops.pop()

    def _join(self, ways: Sequence[set[str]]) -> None:
        """Continue where several ways lead, each with these names bound; without any, what follows is left out."""
        self._bound = set.intersection(*ways) if ways else set(self._names)

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
        ways = [set(self._bound)]
        self._label(inside)
        self._assign(target, Number(count))
        self._loop(body, again, end, ways)
        self._label(again)
        following = self.value(f"add nsw i64 {self.value(f'load i64, ptr {counter}')}, {step}")
        self.emit(f"store i64 {following}, ptr {counter}")
        self._jump(test)
        self._label(end)
        self._join(ways)

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
                self._bound.add(name)
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
        self._bound.add(name)
