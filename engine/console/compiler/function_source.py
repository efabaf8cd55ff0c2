"""The functions that are compiled: their syntax trees, and keys that change with all that their code depends on.

Python imports a file once, but somebody may edit it later. So the lines of a file are kept when a function in it is
decorated; before they are compiled they are compared with what Python has imported; and keys are made of the latter.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from engine.console.compiler.values import Value

_LINES: dict[CodeType, list[str]] = {}
"""The lines of its file, for the code of each function that can be compiled."""


def keep_source(function: Callable[..., Any]) -> None:
    """Keep the lines of the function's file, so that it can be compiled. Call it where the function is defined."""
    assert isinstance(function, FunctionType)
    file = function.__code__.co_filename
    linecache.checkcache(file)  # costs microseconds, unlike to find the function's own lines
    _LINES[function.__code__] = linecache.getlines(file, function.__globals__)


def has_source(function: object) -> bool:
    """Return whether `keep_source` was called for a function."""
    return isinstance(function, FunctionType) and function.__code__ in _LINES


def syntax_tree(function: Callable[..., Any]) -> ast.FunctionDef:
    """The function's syntax tree. Raises `TypeError` if its file was edited while it was imported."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    found, meaning = _functions("".join(_LINES[code]), code.co_filename).get(code.co_firstlineno, (None, b""))
    if found is None or meaning != _meaning(code):
        raise TypeError(f"{code.co_filename}:{code.co_firstlineno}: {code.co_name} was edited while it was imported")
    return found


@functools.lru_cache(maxsize=32)
def _functions(source: str, file: str) -> dict[int, tuple[ast.FunctionDef, bytes]]:
    """The syntax tree and the `_meaning` of each function in a file, by its first line, that of a decorator."""
    try:
        tree, pending = ast.parse(source), [compile(source, file, "exec", dont_inherit=True)]
    except SyntaxError:
        return {}
    meanings = {}
    while pending:
        code = pending.pop()
        meanings[code.co_firstlineno, code.co_name] = _meaning(code)
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if (line, node.name) in meanings:
                found[line] = node, meanings[line, node.name]
    return found


def key_of(function: Callable[..., Any]) -> str:
    """Hex digits that change with the code of a function, and with all functions and constants that it uses."""
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    pending, seen = [function], set()
    while pending:
        function = pending.pop()
        if function not in seen:
            seen.add(function)
            digest.update(_meaning(function.__code__))
            for name, value in _used(function.__code__.co_names, function.__globals__):
                value = inspect.unwrap(value) if callable(value) else value
                digest.update(f"{name} {_described(value)}\n".encode())
                if has_source(value):
                    pending.append(value)
    return digest.hexdigest()


def _meaning(code: CodeType) -> bytes:
    """Return what Python executes, without the place of it."""
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return repr((code.co_name, counts, code.co_varnames, code.co_names, constants, code.co_code)).encode()


def _used(names: tuple[str, ...], owner: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return what some names of a function's code can mean: the global ones, and all attributes of the modules among
    them."""
    modules, seen = [owner], set()
    while modules:
        owner = modules.pop()
        for name in names:
            if isinstance(value := owner.get(name), ModuleType):
                if value not in seen:
                    seen.add(value)
                    modules.append(vars(value))
            elif name in owner:
                yield name, value


def _described(value: object) -> str:
    """A text that changes with a constant. Functions with a source are described by their code instead."""
    match value:
        case np.ndarray():
            return f"{value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        case Intrinsic(write=FunctionType() as write):
            kept = [cell.cell_contents for cell in write.__closure__ or ()]
            return f"{_meaning(write.__code__)!r} {kept}"
        case _ if callable(value):
            return getattr(value, "__qualname__", type(value).__qualname__)
    return repr(value)


class Intrinsic:
    """A function that writes LLVM IR itself: `write(writer, *values)` returns its value, if it has one."""

    def __init__(self, write: Callable[..., Value | None]) -> None:
        self.write = write

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError("only compiled functions can call this")
