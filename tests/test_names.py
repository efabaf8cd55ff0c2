"""Names of games, runners and networks: where they stand, and that nothing else branches on one or imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from engine.config.game import games
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS

ROOT = Path(__file__).parents[1]
_OF_GAMES = ("engine/games/", "engine/extras/", "mario_tui/environments.py")
"""What may know single games: their packages, the extras, and the public names of their environments."""


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """The files below folders, with their syntax trees."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def named(names: set[str]) -> Iterator[tuple[str, str]]:
    """The files of both packages in which a name is a string of its own, but for docstrings, and the name."""
    for path, tree in trees("engine", "mario_tui"):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in docstrings:
                yield path, str(node.value)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a file imports anywhere, also for its types alone, and what it takes from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_outside_the_games_nothing_names_one_but_the_default() -> None:
    found = [(path, name) for path, name in named(set(games())) if not path.startswith(_OF_GAMES)]
    assert found == [("engine/config/run_config.py", RunConfig.game)]


def test_outside_the_games_nothing_imports_one() -> None:
    found = {
        path
        for path, tree in trees("engine", "mario_tui")
        if not path.startswith(_OF_GAMES) and any(name.startswith("engine.games") for name in imported(tree))
    }
    assert not found


def test_a_runner_is_named_in_its_table_and_in_presets() -> None:
    found = {path for path, _ in named(set(RUNNERS))}
    assert found == {
        "engine/config/command_line.py", "engine/config/runners.py", "engine/games/gym/game.py",
        "engine/games/snake/game.py", "engine/games/tetris/game.py",
    }  # fmt: skip
