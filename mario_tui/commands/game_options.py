"""Options of games that commands other than training take, as the games declare them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.config.command_line import add_option
from engine.config.game import CommandOption, Game
from engine.config.games import game_of, games
from engine.config.reading import make_config
from engine.config.run_config import options_of_all
from engine.config.user_code import located
from mario_tui.launch import expanded


def of_all(declared: Callable[[Game], Mapping[str, CommandOption]]) -> dict[str, CommandOption]:
    """What all games have declared, by option. One that several games have is described as in the first of them."""
    every: dict[str, CommandOption] = {}
    for name in games():
        every |= {option: how for option, how in declared(game_of(name)).items() if option not in every}
    return every


def played_options() -> dict[str, CommandOption]:
    """Options that `eval` and `play` take besides a policy."""
    return of_all(lambda game: game.played_options)


def add_game_options(parser: argparse.ArgumentParser, options: Mapping[str, CommandOption]) -> None:
    """Add a flag for each of them. Only those that were given appear in the parsed namespace."""
    for name, how in options.items():
        add_option(parser, options_of_all()[name], how.help, metavar=how.metavar)


def given_options(options: Mapping[str, Any], names: Iterable[str], game: str) -> dict[str, Any]:
    """Those of the options that have one of these names, which are a game's own; paths of files are absolute. Raises
    `ConfigError`."""
    values = {name: options[name] for name in names if options.get(name) is not None}
    values = located(values, Path())
    make_config({"game": game, **values})  # validates
    return {name: str(expanded(value).resolve()) if _is_file(name) else value for name, value in values.items()}


def _is_file(name: str) -> bool:
    return bool(options_of_all()[name].metadata["metavar"] == "FILE")
