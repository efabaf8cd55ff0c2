"""The registry of games: the built-in ones (`engine.games`), and those of installed packages.

A descriptor of an installed package is imported only in processes that play or learn; see `engine.config.plugins`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from engine.config.entry_points import installed
from engine.config.fields import FieldSpec
from engine.config.game import Game


class _Names(Sequence[str]):
    """The names of all games. They are looked for when they are needed: a built-in one is known without that."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and is_game(name)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(games())

    def __getitem__(self, index: Any) -> Any:
        return games()[index]


GAMES = _Names()
_imported: dict[str, Game] = {}
"""The descriptors that this process has imported."""
_imports_plugins = False


def games() -> tuple[str, ...]:
    """The names of all games: the built-in ones, and those of installed packages that can be used."""
    return (*_built_in(), *(name for name in installed() if name in _imported or _plugins().described(name)))


def is_game(name: str) -> bool:
    """Whether there is a game of that name, and it can be used."""
    if name in _built_in() or name in _imported:
        return True
    return name in installed() and (_imports_plugins or _plugins().described(name, again=True) is not None)


def game_of(name: str) -> Game:
    """The descriptor of a game, one of `games()`.

    That of an installed package is imported only in a process that plays or learns; in others a process of its own
    answers for it. Raises `UserError` if it can't be imported.
    """
    if name in _imported:
        return _imported[name]
    if name in _built_in():
        _imported[name] = pkgutil.resolve_name(_built_in()[name])()
    elif _imports_plugins:
        _imported[name] = _plugins().imported(name)
    else:
        return described(name)
    return _imported[name]


def described(name: str) -> Game:
    """As `game_of`, for data alone: this imports no installed package."""
    if name in _imported or name in _built_in():
        return game_of(name)
    game: Game | None = _plugins().described(name) if name in installed() else None
    if game is None:
        raise KeyError(name)
    return game


@cache
def own_options(name: str) -> Mapping[str, FieldSpec]:
    """The options that a game has besides those of all games, by name."""
    return {spec.name: spec for spec in fields(described(name).options)}


def import_plugins() -> None:
    """From now on, import the package of a game that this process is asked to play. Not for processes of the terminal
    and hosts: a package may import torch."""
    global _imports_plugins
    _imports_plugins = True


@cache
def _built_in() -> Mapping[str, str]:
    places: Mapping[str, str] = importlib.import_module("engine.games").BUILT_IN
    return places


def _plugins() -> Any:
    """`engine.config.plugins`, which builds on this module and is imported only where packages have games."""
    return importlib.import_module("engine.config.plugins")
