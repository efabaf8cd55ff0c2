"""Private names of Textual are used in one module: any version may change them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import textual

import mario_tui

ROOT = Path(mario_tui.__file__).parent
INTERNALS = "mario_tui.terminal.internals"
PLANTED = """
import textual._compositor
from textual import screen
from textual.app import App
from textual.keys import _character_to_key
from textual.widgets import Input
from textual.widgets._footer import FooterKey

class Field(Input):
    _cursor_visible = False

    async def _on_key(self, event):
        await super()._on_key(event)
        self._restart_blink()
        self._closed = True
        self._own = self._text = event

def use(app):
    app._driver.write(getattr(app.screen, "_compositor"))
    screen.ScreenStack = list
    App.title = ""
"""
IN_PLANTED = {
    "textual._compositor", "textual.keys._character_to_key", "textual.widgets._footer.FooterKey",
    "Field._cursor_visible", "Field._on_key", "super()._on_key", "self._restart_blink", "self._closed", "app._driver",
    "_compositor", "screen.ScreenStack", "App.title",
}  # fmt: skip


def private(name: str) -> bool:
    return name.startswith("_") and name != "_" and not name.endswith("__")


@cache
def defined_in(path: str) -> Mapping[str, frozenset[str]]:
    """The private names that each class of a file defines or gives to itself; for "": those of the file."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    found: dict[str, frozenset[str]] = {"": frozenset(_defined(tree.body))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            given = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and _of_self(each)}
            found[node.name] = found.get(node.name, frozenset()) | _defined(node.body) | set(filter(private, given))
    return found


def _defined(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign() | ast.AnnAssign():
                names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and _is_stored(each)}
    return set(filter(private, names))


def _is_stored(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _of_self(node: ast.Attribute) -> bool:
    return _is_stored(node) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


@cache
def all_names() -> frozenset[str]:
    """The private names of all files of Textual."""
    files = map(str, Path(textual.__file__).parent.rglob("*.py"))
    return frozenset().union(*(names for file in files for names in defined_in(file).values()))


@cache
def inherited_names(kind: type[Any]) -> frozenset[str]:
    """The private names that a class has from Textual's classes."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "textual"]
    given = (defined_in(str(inspect.getsourcefile(base))).get(base.__name__, frozenset()) for base in bases)
    return frozenset(name for base in bases for name in vars(base) if private(name)).union(*given)


def imported(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """What is imported from Textual: line, whole name, and the name here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if (whole := prefix + alias.name).partition(".")[0] == "textual":
                    yield node.lineno, whole, alias.asname or alias.name


def touched(source: str, namespace: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The lines that touch a private name of Textual, or replace a public one: by an import, on an object of others, as
    a string, or by a class of the namespace that overrides or uses one of its bases'."""
    tree = ast.parse(source)
    for line, whole, _ in imported(tree):
        if any(map(private, whole.split("."))):
            yield line, whole
    from_textual = {name for _, _, name in imported(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if name in from_textual:
                yield node.lineno, ast.unparse(node)
            case ast.Attribute(value=value) if _is_self(value):
                pass  # below, with its class
            case ast.Attribute(attr=name) if name in all_names():
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=name), *_]):
                if name in all_names():
                    yield node.lineno, name
            case ast.ClassDef() if isinstance(kind := namespace.get(node.name), type):
                names = inherited_names(kind)
                yield from ((node.lineno, f"{node.name}.{name}") for name in _defined(node.body) & names)
                for each in ast.walk(node):
                    if isinstance(each, ast.Attribute) and each.attr in names and _is_self(each.value):
                        yield each.lineno, ast.unparse(each)


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_private_names_of_textual_are_used_in_one_module() -> None:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if name != "mario_tui.__main__":  # it runs the program
            found[name] = list(touched(path.read_text(encoding="utf-8"), vars(importlib.import_module(name))))
    assert found.pop(INTERNALS)
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_each_way_to_touch_one_is_found() -> None:
    namespace: dict[str, Any] = {"__name__": "planted"}
    exec(PLANTED.partition("def use")[0], namespace)
    assert {what for _, what in touched(PLANTED, namespace)} == IN_PLANTED
