"""Names of games, runners and networks: where they stand, and that nothing else branches on one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.agents.networks import NETWORKS
from engine.config.game import game_of, games
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS

ROOT = Path(__file__).parents[1]
WITHOUT_GAMES = ("agents", "buffers", "config", "envs", "host", "monitoring", "protocol", "runners", "runs", "runtime")
"""Packages of the engine that work for any game."""


def named(folders: list[str], names: set[str]) -> Iterator[tuple[str, str]]:
    """The files below folders in which a name is a string of its own, but for docstrings, and the name."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in docstrings:
                yield str(path.relative_to(ROOT)), str(node.value)


def test_what_works_for_any_game_names_none_but_the_default() -> None:
    found = list(named([f"engine/{room}" for room in WITHOUT_GAMES], set(games())))
    assert found == [("engine/config/run_config.py", RunConfig.game)]


def test_a_runner_is_named_in_its_table_and_in_presets() -> None:
    found = {path for path, _ in named(["engine", "mario_tui"], set(RUNNERS))}
    assert found == {
        "engine/config/presets.py", "engine/config/runners.py", "engine/games/snake/game.py",
        "engine/games/tetris/game.py",
    }  # fmt: skip


@pytest.mark.parametrize("name", games())
def test_a_game_names_networks_that_there_are(name: str) -> None:
    game = game_of(name)
    assert game.name == name and set(game.networks) <= NETWORKS.keys() | game.own_networks.keys()
    assert game.network(RunConfig(game=name)) in game.networks
