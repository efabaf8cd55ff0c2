"""`mario-tui --eval-only`: evaluates what a run has learned, from the options of a run."""

from __future__ import annotations

import argparse
import sys

import msgspec

from engine.config.command_line import as_arguments, given
from engine.config.conditions import Conditions
from engine.config.fields import ConfigError, flag
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.config.tasks import rounded_up, tasks_of
from engine.errors import UserError
from mario_tui.commands.game_options import given_options
from mario_tui.launch import asked_options

_CONDITIONS = {f"eval_{name}" for name in Conditions.__struct_fields__}
_USED = {"game", "noop_max", "run_dir", "seed", "eval_episodes", *_CONDITIONS}


def run(options: argparse.Namespace) -> int:
    """Evaluate the best policy of the run that `--resume` names, else of the newest run of the game in `--run-dir`.
    Raises `UserError` if there is none."""
    from engine.runs.checkpoints import CheckpointError, find_policy, newest_with_policy, policy_metadata
    from mario_tui.evaluate import WantedEvaluation, evaluate

    asked = asked_options(given(options), options.config, options.preset)
    try:
        if options.resume is not None:
            policy = find_policy(options.resume, asked.get("run_dir"))
        else:
            config, run_dir = make_config(asked), str(asked.get("run_dir", RunConfig.run_dir))
            name = config.game_info.tasks
            needs_task = name in asked and name in config.game_info.network_options  # no other network fits
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
        if name not in _USED and name not in config.game_info.played_options:
            print(f"mario-tui: {flag(name)} has no effect with --eval-only", file=sys.stderr)
    own = given_options(asked, config.game_info.played_options, config.game)
    episodes = rounded_up(config.eval_episodes, tasks_of(metadata, own.get(config.game_info.tasks)))
    for_engine = as_arguments({**msgspec.structs.asdict(config.eval_conditions), "seed": config.seed, **own})
    return evaluate(WantedEvaluation(policy, episodes, for_engine), as_json=options.log_format == "json")
