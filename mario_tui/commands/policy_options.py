"""Options of the commands that play with a policy: `eval` and `play`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from engine.config.command_line import as_arguments
from engine.config.conditions import Conditions
from engine.config.fields import ConfigError, flag
from engine.config.games import game_of
from engine.errors import UserError
from mario_tui.commands.game_options import add_game_options, given_options, played_options
from mario_tui.commands.options import add_run_dir, whole, within

_CONDITIONS: dict[str, float] = msgspec.structs.asdict(Conditions())
"""The options that make a game harder for its policy, with their defaults."""


def add_policy(parser: argparse.ArgumentParser, nargs: Literal["?", "+"]) -> None:
    parser.add_argument(
        "checkpoint",
        nargs=nargs,
        help="a policy file, a checkpoint folder, a run's name or path, latest, or an included policy (mario-1-1)"
        + ("; if omitted, the included policy for --game and --stage" if nargs == "?" else "; several in one table"),
    )
    parser.add_argument(
        "--epsilon",
        type=within("--epsilon", 0, 1),
        metavar="E",
        help="fraction of random actions (default: 0)",
    )
    parser.add_argument(
        "--sticky-actions",
        type=within("--sticky-actions", 0, 0.99),
        metavar="X",
        help="probability of repeating the previous action (default: 0)",
    )
    parser.add_argument(
        "--noop-min",
        type=whole("--noop-min", 0, 255),
        metavar="N",
        help="minimum number of random no-op frames at the start (default: 0)",
    )
    parser.add_argument(
        "--noop-max",
        type=whole("--noop-max", 0, 255),
        metavar="N",
        help="maximum number of random no-op frames at the start (default: 30, or --noop-min if that is more)",
    )
    parser.add_argument(
        "--seed", type=whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="random seed (default: 0)"
    )
    add_game_options(parser, played_options())
    add_run_dir(parser)


def engine_arguments(options: argparse.Namespace, game: str, names: Iterable[str]) -> list[str]:
    """The conditions, the seed, and those `names` of the game's options that were given, as arguments of the engine's
    command. Raises `ConfigError`."""
    given = {name: getattr(options, name) for name in conditions_given(options)}
    usual = _CONDITIONS | {"noop_max": max(_CONDITIONS["noop_max"], given.get("noop_min", 0))}
    conditions = usual | given
    if conditions["noop_min"] > conditions["noop_max"]:
        raise ConfigError(
            "noop_min", f"must be at most --noop-max ({conditions['noop_max']}), got {conditions['noop_min']}"
        )
    return as_arguments({**conditions, "seed": options.seed, **given_options(vars(options), names, game)})


def conditions_given(options: argparse.Namespace) -> list[str]:
    """Names of the conditions (epsilon, sticky actions, no-ops) that are on the command line."""
    return [name for name in _CONDITIONS if getattr(options, name) is not None]


def check_policy(policy: Path, options: argparse.Namespace) -> str:
    """The game of a policy. Raises `UserError` for options and conditions that it does not have."""
    from engine.runs.checkpoints import policy_metadata

    game = game_of(policy_metadata(policy)["game"])
    for name in (*played_options(), *_CONDITIONS):
        known = name in game.played_options or name in game.conditions
        if not known and getattr(options, name, None) is not None:
            raise UserError(f"{flag(name)} can't be combined with a policy for {game.name}")
    return game.name
