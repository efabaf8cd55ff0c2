"""What the product may weigh. To raise a bound takes a line in the commit that says why; lower it when you can.

The core is everything but `engine/console` and what may be missing: the extras, and the games on boards (both have a
test without them). A chain of imports counts modules that import one another
when they are imported, not inside functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from engine.config.game import Game

ROOT = Path(__file__).parents[1]
CORE_LINES = 43_317
MODULES = 370
MEMBERS_OF_GAME = 15
LONGEST_CHAIN = 15
_APART = (
    "engine/console", "engine/extras", "engine/games/boards", "engine/games/snake", "engine/games/tetris",
    "mario_tui/extras",
)  # fmt: skip

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("engine", "mario_tui")
    for path in sorted(ROOT.glob(f"{package}/**/*.py"))
}


def imported(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module import."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test)):
            yield from imported(node.body)


def chain() -> list[str]:
    """The longest chain of imports, from the top."""
    graph = {
        name: {
            other
            for other in imported(ast.parse(path.read_bytes()).body)
            if other in SOURCES and not f"{name}.".startswith(f"{other}.")  # nor the package that it is in
        }
        for name, path in SOURCES.items()
    }
    below: dict[str, list[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = [name, *max((below[other] for other in graph[name]), key=len, default=[])]
    return max(below.values(), key=len)


def test_the_core_fits_in_one_head() -> None:
    lines = sum(
        len(path.read_bytes().splitlines())
        for path in SOURCES.values()
        if not path.relative_to(ROOT).as_posix().startswith(_APART)
    )
    assert lines <= CORE_LINES


def test_there_are_few_modules() -> None:
    assert len(SOURCES) <= MODULES


def test_the_contract_of_a_game_is_small() -> None:
    assert len({name for name in (*Game.__annotations__, *vars(Game)) if not name.startswith("_")}) <= MEMBERS_OF_GAME


def test_no_chain_of_imports_is_long() -> None:
    found = chain()
    assert len(found) <= LONGEST_CHAIN, " > ".join(found)
