"""`mario-tui eval`, how good policies are; and `mario-tui --eval-only`, what a run has learned, from the options of a
run.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from engine.config.capabilities import played_options
from engine.config.command_line import given
from engine.config.fields import ConfigError, flag
from engine.config.game import game_of, options_with
from engine.config.reading import make_config, rounded_up, tasks_of
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.outcome import Conditions
from mario_tui.commands.options import (
    Parser,
    add_policy,
    check_policy,
    chosen_policies,
    conditions_given,
    for_engine,
    given_options,
    whole,
)
from mario_tui.launch import asked_options

if TYPE_CHECKING:
    from mario_tui.evaluate import WantedEvaluation


_EPISODES = 20


def eval_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui eval", description="Clear rate and mean return of policies.")
    add_policy(parser, "+")
    parser.add_argument("--episodes", type=whole("--episodes", 1), metavar="N",
                        help="episodes to play, rounded up to the same number for every stage or board of the policy "
                             f"(default: {_EPISODES}; with --fresh {RunConfig.final_episodes})")  # fmt: skip
    parser.add_argument("--fresh", action="store_true",
                        help="episodes that neither training nor the evaluations of the policy's run had, as for the "
                             "result of a run")  # fmt: skip
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
    from engine.runs.checkpoints import policy_metadata
    from mario_tui.evaluate import WantedEvaluation

    options = argparse.Namespace(**vars(options))
    policy, others = chosen_policies(name, options)
    game = game_of(check_policy(policy, options))
    order = for_engine(options, game.name, played_options(game)) | {"others": others, "called": name}
    if options.fresh and others:
        raise UserError("--fresh can't be combined with policies that take turns")
    if options.fresh:
        given = [*conditions_given(options), *(["seed"] if options.seed is not None else [])]
        if given:
            raise UserError(f"{flag(given[0])} can't be combined with --fresh")
        order["fresh"] = True
    episodes = options.episodes or (RunConfig.final_episodes if options.fresh else _EPISODES)
    task = getattr(options, game.tasks, None)
    return WantedEvaluation(policy, rounded_up(episodes, tasks_of(policy_metadata(policy), task)), order)


_CONDITIONS = {f"eval_{name}" for name in Conditions.__struct_fields__}
_USED = {"game", "noop_max", "run_dir", "seed", "eval_episodes", "random_phase", "halfway_starts", *_CONDITIONS}


def run_eval_only(options: argparse.Namespace) -> int:
    """Evaluate the best policy of the run that `--resume` names, else of the newest run of the game in `--run-dir`.
    Raises `UserError` if there is none."""
    from engine.runs.checkpoints import CheckpointError, policy_metadata
    from engine.runs.lookup import find_policy, newest_with_policy
    from mario_tui.evaluate import WantedEvaluation, evaluate

    asked = asked_options(given(options), options.config, options.preset, trusted=options.trust)
    try:
        if options.resume is not None:
            policy = find_policy(options.resume, asked.get("run_dir"))
        else:
            config, run_dir = make_config(asked), str(asked.get("run_dir", RunConfig.run_dir))
            name = config.game_info.tasks
            needs_task = name in asked and name in options_with("network", config.game)  # no other network fits
            task = config.task_label if needs_task else None
            newest = newest_with_policy(run_dir, config.game, task)
            if newest is None:
                what = " ".join(filter(None, (config.game, task)))
                raise CheckpointError(f"no run of {what} in {run_dir} has a policy yet")
            policy = find_policy(str(newest.path), None)
    except CheckpointError as error:
        raise UserError(f"--eval-only: {error}; for any policy: mario-tui eval POLICY") from None
    metadata = policy_metadata(policy)
    if asked.get("game", metadata["game"]) != metadata["game"]:
        raise ConfigError("game", f"must be {metadata['game']}, as in {policy}, got {asked['game']}")
    config = make_config({**asked, "game": metadata["game"]})
    for name in given(options):
        if name not in _USED and name not in played_options(config.game_info):
            print(f"mario-tui: {flag(name)} has no effect with --eval-only", file=sys.stderr)
    own = given_options(asked, played_options(config.game_info), config.game)
    episodes = rounded_up(config.eval_episodes, tasks_of(metadata, own.get(config.game_info.tasks)))
    order = {"conditions": config.eval_conditions, "seed": config.seed, "own": own}
    return evaluate(WantedEvaluation(policy, episodes, order), as_json=options.log_format == "json")
