"""`mario-tui distill`: one network that plays what several policies play."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from engine.config.command_line import as_arguments
from engine.config.fields import flag
from engine.config.game import CommandOption, Distillation
from engine.config.games import game_of, games
from engine.errors import UserError
from mario_tui.commands.game_options import add_game_options, given_options, of_all
from mario_tui.commands.options import Parser, add_run_dir, existing, whole, within
from mario_tui.launch import expanded

_SUFFIX = ".safetensors"


def distill_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui distill",
        description="Teach one network what several policies play. They are the teachers: each labels what the student "
        "sees in its stages (Mario) or on its board (Snake). A stage of Mario can be given instead of a policy: then "
        "a search in the emulator finds a way to its flag, and what to do where the student fails.",
        epilog="Ctrl-C ends it; the best student so far is kept.",
    )
    parser.add_argument(
        "checkpoint",
        nargs="+",
        metavar="POLICY|STAGE",
        help="a policy file, a checkpoint folder, a run's name or path, latest, an included policy (mario-1-1), or a "
        "stage (1-3), which is taught by a search",
    )
    parser.add_argument(
        "--into", type=expanded, default=Path(f"distilled{_SUFFIX}"), metavar="FILE",
        help=f"policy file to write (default: distilled{_SUFFIX})",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    add_game_options(parser, _options_of_all())
    parser.add_argument(
        "--initial-policy", metavar="POLICY", help="begin with the weights of this policy (default: random weights)"
    )
    parser.add_argument(
        "--steps", type=whole("--steps", 1, 10**12), default=500_000, metavar="N",
        help="environment steps, of all stages together (default: 500,000)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=within("--minutes", 0.01, 100_000), metavar="M",
        help="also stop after this time, of which a search for ways to the flag gets half; the last evaluation "
        "follows (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-every", type=whole("--eval-every", 1, 10**12), default=50_000, metavar="N",
        help="environment steps between evaluations; the best student is kept (default: 50,000)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-episodes", type=whole("--eval-episodes", 1, 1000), default=10, metavar="N",
        help="episodes per evaluation and stage or board (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-epsilon", type=within("--eval-epsilon", 0, 1), default=0.0, metavar="X",
        help="fraction of random actions in evaluations; 0: greedy (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="random seed (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines: each evaluation, then a summary")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = distill_parser().parse_args(arguments)
    from engine.runs.checkpoints import find_policy, policy_metadata
    from engine.runs.origin import origin_of

    searched = {task: game for game in games() for task in _distillation(game).searched}
    teachers = [
        name if name in searched else str(find_policy(name, existing(options.run_dir))) for name in options.checkpoint
    ]
    first = teachers[0]
    game = searched.get(first) or str(policy_metadata(Path(first))["game"])
    of_game = _distillation(game)
    for name in _options_of_all():
        if name not in of_game.options and hasattr(options, name):
            raise UserError(f"{flag(name)} can't be combined with policies for {game}")
    if game_of(game).distillation is None:
        can = " or ".join(each for each in games() if game_of(each).distillation is not None)
        raise UserError(f"{origin_of(Path(first)).name}: game must be {can}, got {game}")
    searches = [searched[name] for name in teachers if name in searched]
    for name in of_game.search_options:
        if hasattr(options, name) and not searches:
            raise UserError(f"{flag(name)} needs a {game_of(game).tasks}; policies keep their own")
    into = _target(options.into, force=options.force)
    limits = {
        name: getattr(options, name)
        for name in ("steps", "minutes", "eval_every", "eval_episodes", "eval_epsilon", "seed")
    }
    own = given_options(vars(options), of_game.options, game)
    given = {"into": into, "game": game, **own, **{name: value for name, value in limits.items() if value is not None}}
    if searches:
        given["searched_by"] = searches[0]
    if options.initial_policy is not None:
        given["initial_policy"] = find_policy(options.initial_policy, existing(options.run_dir))
    for_engine = [*teachers, *as_arguments(given)]
    from mario_tui.distill import distill

    return distill(for_engine, game, options.steps, options.minutes, as_json=options.json)


def _target(path: Path, *, force: bool) -> Path:
    """Where the policy is written. Raises `UserError` if it can't be, before anything is learned."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--into must end in {_SUFFIX}, got {str(path)!r}")
    folder = path.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"--into must be in a folder that can be written to, got {str(path)!r}")
    if path.is_dir() or (path.exists() and not force):
        raise UserError(f"--into: {path} exists already; --force overwrites it")
    return path.absolute()


def _distillation(game: str) -> Distillation:
    """How policies of a game are distilled; without options and searches if they can't be."""
    return game_of(game).distillation or Distillation(network="", lanes=0)


def _options_of_all() -> dict[str, CommandOption]:
    return of_all(lambda game: _distillation(game.name).options)
