"""Run options as command-line flags: parsing them, and writing them back as a command."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from engine.config.defaults import defaults
from engine.config.fields import FieldSpec, flag, is_int, is_text, read_number
from engine.config.game import own_options
from engine.config.reading import ALIASES, make_config
from engine.config.run_config import COMMON, RunConfig, belongs, options_of_all


def add_arguments(parser: argparse.ArgumentParser, game: str = RunConfig.game, runner: str = RunConfig.runner) -> None:
    """Add a flag for every field. Only flags that were given appear in the parsed namespace.

    The help shows the options and defaults of `game` and `runner`.
    """
    groups: dict[str, Any] = {}
    for spec in {**options_of_all(), **own_options(game)}.values():
        meta = spec.metadata
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(meta["group"])
        default = defaults(game, runner).get(spec.name, spec.default)
        default = "none" if default is None else default
        help = meta["help"]
        kwargs: dict[str, Any] = {"dest": spec.name, "default": argparse.SUPPRESS}
        if isinstance(spec.default, bool):
            state = "on" if default else "off"
            kwargs |= {"action": argparse.BooleanOptionalAction, "help": f"{help} (default: {state})"}
        else:
            kwargs |= {
                "type": str if is_text(spec) else read_number,
                "metavar": meta["metavar"] or "|".join(meta["choices"] or ()) or _unit(spec),
                "help": f"{help} (default: {default})",
            }
        if not belongs(spec.name, game, runner):
            kwargs["help"] = argparse.SUPPRESS
        groups[meta["group"]].add_argument(flag(spec.name), **kwargs)
    for name, (option_name, value) in ALIASES.items():
        groups[COMMON[option_name].metadata["group"]].add_argument(
            flag(name), dest=option_name, action="store_const", const=value, default=argparse.SUPPRESS,
            help=f"earlier name of {flag(option_name)} {value}" if belongs(option_name, game, runner)
            else argparse.SUPPRESS,
        )  # fmt: skip


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    """The run options that were given on the command line, by field name."""
    return {name: value for name, value in vars(namespace).items() if name in options_of_all()}


def _unit(spec: FieldSpec) -> str:
    return "N" if is_int(spec) else "X" if "float" in str(spec.type) else "NAME"


def command_line(config: RunConfig) -> str:
    """The command that starts a run with these options. Only what differs from the defaults is written out, and what an
    initial policy or other options would decide otherwise."""
    words = ["mario-tui", "--game", config.game]
    if config.runner != RunConfig.runner:
        words += ["--runner", config.runner]
    options = config.options()
    kinds = {"game": config.game, "runner": config.runner}
    defaults = make_config(kinds).options()
    always = config.game_info.of_policy if config.initial_policy is not None else ()
    written = {name for name, value in options.items() if value != defaults.get(name) or name in always} - kinds.keys()
    followed = make_config({**kinds, **{name: options[name] for name in written}}).options()
    for name, value in options.items():
        if name not in written and value == followed.get(name):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
        else:
            words += [flag(name), str(value)]
    return shlex.join(words)
