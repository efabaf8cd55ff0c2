"""`mario-tui play`: watch a policy, or play yourself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.config.fields import flag
from engine.config.game import games
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runs import policies
from mario_tui.commands.options import Parser, existing, need_terminal, whole
from mario_tui.commands.policy_options import add_policy, check_policy, conditions_given, engine_arguments

_HOLD_MS = 250


def play_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui play", description="Watch a policy play in real time, or play yourself.")
    parser.add_argument(
        "--human",
        action="store_true",
        help="play yourself: arrows or WASD; in Mario x jumps, z runs; in Tetris space drops, c holds",
    )
    parser.add_argument("--game", choices=games(), help="game to play without CHECKPOINT (default: mario)")
    parser.add_argument("--board", metavar="WxH", help="board size of Snake or Tetris, without CHECKPOINT")
    parser.add_argument("--hold", type=whole("--hold", 20, 2000), metavar="MS",
                        help=f"with --human: how long a key press counts as held (default: {_HOLD_MS})")  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record to a .gif or .mp4 file; without a terminal, one episode"
    )
    parser.add_argument("--force", action="store_true", help="with --record: overwrite FILE if it exists")
    add_policy(parser, optional=True)
    return parser


def run(arguments: list[str]) -> int:
    options = play_parser().parse_args(arguments)
    if options.record is None and options.force:
        raise UserError("--force needs --record")
    if options.record is not None and options.record.is_file() and not options.force:
        raise UserError(f"--record: {options.record} exists already; --force overwrites it")
    if options.human and options.checkpoint is not None:
        raise UserError("CHECKPOINT can't be combined with --human")
    for name in ("game", "board"):
        if options.checkpoint is not None and getattr(options, name) is not None:
            raise UserError(f"--{name} can't be combined with CHECKPOINT, which determines the {name}")
    game = options.game or RunConfig.game
    title = game
    if options.board is not None and game == "mario":
        raise UserError("--board needs --game snake or --game tetris")
    if options.human:
        for name in conditions_given(options):
            raise UserError(f"{flag(name)} can't be combined with --human; it is for policies")
        for_engine = _engine_arguments(options)
        task = {name: getattr(options, name) for name in ("board", "stage", "emulator")}
        task |= {"game": game, "rom": None if options.rom is None else str(options.rom)}
        make_config({name: value for name, value in task.items() if value is not None})  # validates
        for_engine.append(f"--game={game}")
        if options.board is not None:
            for_engine.append(f"--board={options.board}")
    else:
        if options.hold is not None:
            raise UserError("--hold needs --human")
        from engine.runs.checkpoints import find_policy
        from engine.runs.origin import origin_of

        if options.checkpoint is None:
            policy = policies.of_task(game, options.board or (options.stage if game == "mario" else None))
        else:
            policy = find_policy(options.checkpoint, existing(options.run_dir))
        game = check_policy(policy, options)
        for_engine = [str(policy), *_engine_arguments(options)]
        title = origin_of(policy).name
        if options.record is not None and not sys.stdout.isatty():
            from mario_tui.film import record

            return record(for_engine)
    need_terminal("mario-tui eval, or mario-tui play CHECKPOINT --record FILE")
    from mario_tui.play import PlayApp

    hold_s = (options.hold or _HOLD_MS) / 1000
    return PlayApp(title, for_engine, human=options.human, game=game, hold_s=hold_s).run_in_terminal()


def _engine_arguments(options: argparse.Namespace) -> list[str]:
    recorded = [] if options.record is None else [f"--record={options.record.resolve()}"]
    return engine_arguments(options) + recorded
