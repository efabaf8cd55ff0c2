"""`mario-tui eval`: how good policies are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.config.games import game_of
from engine.config.tasks import rounded_up, tasks_of
from mario_tui.commands.options import Parser, existing, whole
from mario_tui.commands.policy_options import add_policy, check_policy, engine_arguments

if TYPE_CHECKING:
    from mario_tui.evaluate import WantedEvaluation


def eval_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui eval", description="Clear rate and mean return of policies.")
    add_policy(parser, "+")
    parser.add_argument("--episodes", type=whole("--episodes", 1), default=20, metavar="N",
                        help="episodes to play, rounded up to the same number for every stage or board of the policy "
                             "(default: 20)")  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, or an array for several policies, instead of text"
    )
    return parser


def run(arguments: list[str]) -> int:
    options = eval_parser().parse_args(arguments)
    from mario_tui.evaluate import evaluate, evaluate_several

    wanted = [_wanted(name, options) for name in options.checkpoint]
    if len(wanted) == 1:
        return evaluate(wanted[0], as_json=options.json)
    return evaluate_several(wanted, as_json=options.json)


def _wanted(name: str, options: argparse.Namespace) -> WantedEvaluation:
    """Raises `UserError` if there is no such policy, or if the options don't fit it."""
    from engine.runs.checkpoints import find_policy, policy_metadata
    from mario_tui.evaluate import WantedEvaluation

    policy = find_policy(name, existing(options.run_dir))
    game = game_of(check_policy(policy, options))
    for_engine = engine_arguments(options, game.name, game.played_options)
    task = getattr(options, game.tasks, None)
    return WantedEvaluation(policy, rounded_up(options.episodes, tasks_of(policy_metadata(policy), task)), for_engine)
