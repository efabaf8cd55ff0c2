"""`mario-tui play`: watch a policy, or play yourself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.config import capabilities
from engine.config.capabilities import CommandOption, Playable
from engine.config.fields import flag, must_be_one_of
from engine.config.game import Game, game_of, games
from engine.config.reading import make_config, with_task
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.results import PlayOrder
from engine.runs import policies
from mario_tui.commands.options import (
    Parser,
    add_game_options,
    add_policy,
    check_policy,
    chosen_policies,
    conditions_given,
    for_engine,
    given_options,
    need_terminal,
    of_all,
    played_options,
    whole,
)

_HOLD_MS = 250


def play_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui play", description="Watch a policy play in real time, or play yourself.")
    parser.add_argument(
        "--human",
        action="store_true",
        help="; ".join(
            (
                "play yourself: arrows or WASD",
                *(game.other_keys for game in map(game_of, games()) if isinstance(game, Playable) and game.other_keys),
            )
        ),
    )
    parser.add_argument("--game", metavar="|".join(games()),
                        help="game to play without CHECKPOINT, or what of it: snake:8x8, gym:CartPole-v1 "
                        f"(default: {RunConfig.game})")  # fmt: skip
    add_game_options(parser, _without_policy())
    parser.add_argument("--hold", type=whole("--hold", 20, 2000), metavar="MS",
                        help=f"with --human: how long a key press counts as held (default: {_HOLD_MS})")  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record to a .gif or .mp4 file; without a terminal, one episode"
    )
    parser.add_argument("--force", action="store_true", help="with --record: overwrite FILE if it exists")
    add_policy(parser, "?")
    return parser


def run(arguments: list[str]) -> int:
    options = play_parser().parse_args(arguments)
    if options.record is None and options.force:
        raise UserError("--force needs --record")
    if options.record is not None and options.record.is_file() and not options.force:
        raise UserError(f"--record: {options.record} exists already; --force overwrites it")
    if options.human and options.checkpoint is not None:
        raise UserError("CHECKPOINT can't be combined with --human")
    for name in ("game", *_without_policy()):
        if options.checkpoint is not None and getattr(options, name, None) is not None:
            raise UserError(f"{flag(name)} can't be combined with CHECKPOINT, which determines the {name}")
    title = RunConfig.game if options.game is None else options.game
    vars(options).update(with_task({**vars(options), "game": title}))
    if options.game not in games():
        raise UserError(f"--game {must_be_one_of(games(), title)}")
    game = game_of(options.game)
    for name in _without_policy():
        if hasattr(options, name) and name not in _person_options(game):
            having = (each for each in games() if name in _person_options(game_of(each)))
            raise UserError(f"{flag(name)} needs {' or '.join(f'--game {each}' for each in having)}")
    keys = None
    if options.human:
        for name in conditions_given(options):
            raise UserError(f"{flag(name)} can't be combined with --human; it is for policies")
        names = (*_without_policy(), *played_options())
        if not isinstance(game, Playable):
            raise UserError(f"--human can't be combined with --game {game.name}, which only policies can play")
        keys = game.keys_of_person(make_config({"game": game.name, **given_options(vars(options), names, game.name)}))
        order = _order(options, game.name, names)
    else:
        if options.hold is not None:
            raise UserError("--hold needs --human")
        from engine.runs.lookup import origin_of

        others: list[str] = []
        if options.checkpoint is None:
            policy = of_task(game.name, getattr(options, game.tasks, None))
        else:
            policy, others = chosen_policies(options.checkpoint, options)
        game = game_of(check_policy(policy, options))
        order = _order(options, game.name, capabilities.played_options(game), policy, others)
        title = options.checkpoint if others else origin_of(policy).name
        if options.record is not None and not sys.stdout.isatty():
            from mario_tui.extras.play.film import record

            return record(order)
    need_terminal("" if options.human else "mario-tui eval, or mario-tui play RUN --record FILE", "a game")
    from mario_tui.extras.play.app import PlayApp

    hold_s = (options.hold or _HOLD_MS) / 1000
    return PlayApp(title, order, keys=keys, game=game.name, hold_s=hold_s).run_in_terminal()


def _person_options(game: Game) -> Mapping[str, CommandOption]:
    """Options of a game that a person plays."""
    return game.person_options if isinstance(game, Playable) else {}


def _without_policy() -> dict[str, CommandOption]:
    """Options that a policy determines."""
    return {name: how for name, how in of_all(_person_options).items() if name not in played_options()}


def _order(
    options: argparse.Namespace, game: str, names: Iterable[str], policy: Path | None = None, others: Sequence[str] = ()
) -> PlayOrder:
    return PlayOrder(
        policy=None if policy is None else str(policy),
        others=list(others),
        game=game,
        record=None if options.record is None else str(options.record.resolve()),
        **for_engine(options, game, names),
    )


def of_task(game: str, where: str | None) -> Path:
    """The policy for a game and its stage or board (None: any); one for this alone is preferred to one for several, and
    of equals the first by name. Raises `UserError` with the names of all policies, or how to install it."""
    known = policies.cards()
    suited = [card for card in known if card.game == game and where in (None, card.stage, *card.stage.split(","))]
    if where is not None:
        suited.sort(key=lambda card: card.stage.count(","))
    paths = (policies.path_of(card.name) for card in suited)
    if (path := next(filter(None, paths), None)) is not None:
        return path
    if suited:
        raise UserError(f"CHECKPOINT: {policies.how_to_install(suited[0].name)}")
    names = ", ".join(card.name for card in known) or "none yet"
    asked = game if where is None else f"{game} {where}"
    raise UserError(f"CHECKPOINT: no policy comes with the package for {asked}; accepted: {names}")
