"""Run options as command-line flags: parsing them, and writing them back as a command."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.config.common_options import COMMON
from engine.config.defaults import defaults
from engine.config.fields import FieldSpec, check, coerce, flag, is_int, is_text, read_number
from engine.config.games import own_options
from engine.config.reading import ALIASES, completed, with_task
from engine.config.run_config import RunConfig, belongs, options_of_all
from engine.config.user_code import located


def add_arguments(parser: argparse.ArgumentParser, game: str = RunConfig.game, runner: str = RunConfig.runner) -> None:
    """Add a flag for every field. Only flags that were given appear in the parsed namespace.

    The help shows the options and defaults of `game` and `runner`.
    """
    groups: dict[str, Any] = {}
    for spec in {**options_of_all(), **own_options(game)}.values():
        meta = spec.metadata
        if meta["hidden"]:
            continue
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(meta["group"])
        default = defaults(game, runner).get(spec.name, spec.default)
        default = "none" if default is None else default
        help = meta["help"]
        if isinstance(spec.default, bool):
            default = "on" if default else "off"
        add_option(
            groups[meta["group"]],
            spec,
            f"{help} (default: {default})" if belongs(spec.name, game, runner) else argparse.SUPPRESS,
        )
    for name, (option_name, value) in ALIASES.items():
        groups[COMMON[option_name].metadata["group"]].add_argument(
            flag(name), dest=option_name, action="store_const", const=value, default=argparse.SUPPRESS,
            help=f"earlier name of {flag(option_name)} {value}" if belongs(option_name, game, runner)
            else argparse.SUPPRESS,
        )  # fmt: skip


def add_option(parser: argparse._ActionsContainer, spec: FieldSpec, help: str, *, metavar: str | None = None) -> None:
    """Add the flag of an option, whose value is checked later. It appears in the parsed namespace if it was given."""
    kwargs: dict[str, Any] = {"dest": spec.name, "default": argparse.SUPPRESS, "help": help}
    if isinstance(spec.default, bool):
        kwargs["action"] = argparse.BooleanOptionalAction
    else:
        kwargs["type"] = str if is_text(spec) else read_number
        kwargs["metavar"] = (
            metavar or spec.metadata["metavar"] or "|".join(spec.metadata["choices"] or ()) or _unit(spec)
        )
    parser.add_argument(flag(spec.name), **kwargs)


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Values of options as command-line arguments."""
    arguments = []
    for name, value in options.items():
        if isinstance(value, bool):
            arguments.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
        else:
            arguments.append(f"{flag(name)}={value}")
    return arguments


def own_values(arguments: Sequence[str], game: str, names: Iterable[str]) -> dict[str, Any]:
    """The values that arguments give some of a game's own options. Raises `ConfigError`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    specs = own_options(game)
    for name in names:
        add_option(parser, specs[name], "")
    values = {name: coerce(specs[name], value) for name, value in vars(parser.parse_args(arguments)).items()}
    for name, value in values.items():
        check(specs[name], value)
    return values


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    """The run options that were given on the command line, by field name."""
    values = {name: value for name, value in vars(namespace).items() if name in options_of_all()}
    return located(with_task(values), Path())


def _unit(spec: FieldSpec) -> str:
    return "N" if is_int(spec) else "X" if "float" in str(spec.type) else "NAME"


def command_line(config: RunConfig) -> str:
    """The command that starts a run with these options."""
    options, game = options_apart(config), config.game_info
    name = options.pop("game")
    if not game.chosen_by_options:
        name += f":{options.pop(game.tasks)}"
    words = ["mario-tui", "--game", name]
    words += [word for argument in as_arguments(options) for word in argument.split("=", 1)]
    return shlex.join(words)


def options_apart(config: RunConfig) -> dict[str, Any]:
    """The options that start a run like this one, by field name, beginning with the game: what differs from the
    defaults, and what an initial policy or other options would decide otherwise."""
    game, options, values = config.game_info, config.options(), config.values()
    hidden = {name for name, spec in own_options(config.game).items() if spec.metadata["hidden"]}
    kinds = {"game": config.game, "runner": config.runner, **{name: values[name] for name in hidden}}
    found = {"game": config.game}
    if not game.chosen_by_options:
        found[game.tasks] = kinds[game.tasks] = values[game.tasks]
    defaults = completed(kinds)
    always = game.of_policy if config.initial_policy is not None else ()
    written = {name for name in options if values[name] != defaults[name] or name in always} - kinds.keys()
    followed = completed({**kinds, **{name: options[name] for name in written}})
    if config.runner != RunConfig.runner:
        found["runner"] = config.runner
    for name, value in options.items():
        if name not in kinds and (name in written or values[name] != followed[name]):
            found[name] = value
    return found
