"""The process behind `mario-tui play`, and the players of each game: a policy or a person."""

from importlib import import_module
from types import ModuleType


def of_game(name: str) -> ModuleType:
    """The module with the players of a game."""
    return import_module(f"{__name__}.{name}")
