"""`mario-tui eval`: how good a policy is."""

from __future__ import annotations

import argparse

from engine.config.games import game_of
from engine.config.tasks import rounded_up
from mario_tui.commands.options import Parser, existing, whole
from mario_tui.commands.policy_options import add_policy, check_policy, engine_arguments


def eval_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui eval", description="Clear rate and mean return of a policy.")
    add_policy(parser)
    parser.add_argument("--episodes", type=whole("--episodes", 1), default=20, metavar="N",
                        help="episodes to play, rounded up to the same number for every stage or board of the policy "
                             "(default: 20)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return parser


def run(arguments: list[str]) -> int:
    options = eval_parser().parse_args(arguments)
    from engine.runs.checkpoints import find_policy, policy_metadata
    from mario_tui.evaluate import evaluate

    policy = find_policy(options.checkpoint, existing(options.run_dir))
    game = game_of(check_policy(policy, options))
    for_engine = engine_arguments(options, game.name, game.played_options)
    task = getattr(options, game.tasks, None)
    episodes = rounded_up(options.episodes, policy_metadata(policy), task)
    return evaluate(policy, episodes, for_engine, as_json=options.json)
