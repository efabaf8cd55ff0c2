"""Adds a policy and its card to those that come with the package: the best one of a run, or a distilled one.

    python -m engine.commands.release_policy RUN
    python -m engine.commands.release_policy DISTILLED.safetensors --name NAME

The weights are stored as float16 unless the policy plays worse with them. `--judge` plays policies again whose games
have several conditions, and rewrites their cards. `--table` only prints the tables of
`bench/experiments/policies.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine import __version__
from engine.config.command_line import command_line
from engine.config.conditions import Conditions
from engine.config.games import game_of
from engine.config.run_config import RunConfig
from engine.envs.episode import mean_results
from engine.envs.factory import lanes_of_policy
from engine.errors import UserError
from engine.evaluation.episodes import play_episodes
from engine.evaluation.leaderboard import EPISODES, episodes_on_card, leaderboard
from engine.evaluation.policy import greedy_act, load_policy
from engine.protocol.messages import Hello
from engine.runs import policies
from engine.runs.checkpoints import find_policy, policy_metadata
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runtime.threads import available_cores, thread_budget

_SEED = 1
"""Of starts and of random decisions: `mario-tui eval --seed 1` plays the same episodes."""
_LEAST_SHARE = 0.8
"""Of the mean score, with weights in float16. In Tetris the ratio of two such means has a standard error of 11 %."""


def ship(policy: Path, into: Path, name: str, command: str, minutes: float) -> policies.Card:
    """Store a policy as `name` and write its card. Raises `UserError` if the file is not a policy."""
    metadata = policy_metadata(policy)
    target = _weights(name, into)
    into.mkdir(parents=True, exist_ok=True)
    game = game_of(metadata["game"])
    first, *others = game.judged.values()
    whole = _rate(policy, *first)
    header = _header(policy)
    save_file({key: tensor.half() for key, tensor in load_file(policy).items()}, target, header)
    half = _rate(target, *first)
    dtype = "float16"
    worse = half.clears < whole.clears if game.stages else half.mean_score < _LEAST_SHARE * whole.mean_score
    if worse:
        save_file(load_file(policy), target, header)
        half, dtype = whole, "float32"
    cores = available_cores()
    card = policies.Card(
        name=name,
        game=metadata["game"],
        stage=metadata[game.tasks],
        command=command,
        seed=metadata["seed"],
        env_steps=metadata["env_steps"],
        minutes=minutes,
        machine=f"{cores} core{'s' * (cores > 1)}, {platform.machine()}, {psutil.virtual_memory().total >> 30} GiB",
        version=__version__,
        torch=str(torch.__version__),
        dtype=dtype,
        rates=[half, *(_rate(target, *judged) for judged in others)],
    )
    policies.write_card(card, into)
    return card


def _weights(name: str, folder: Path) -> Path:
    """The file of a policy whose card is in the folder. Most of the package's are in `checkpoints/more-policies`."""
    known = policies.path_of(name) if folder == policies.folder() else None
    return known or folder / f"{name}.safetensors"


def judge(folder: Path) -> None:
    """Play the policies in a folder again whose games have several conditions, and rewrite their cards."""
    for card in policies.cards(folder):
        columns = game_of(card.game).judged
        if len(columns) == 1:
            continue
        rates = []
        for name, judged in columns.items():
            rates.append(_rate(_weights(card.name, folder), *judged))
            print(f"{card.name}: {name}: {rates[-1].clears} of {rates[-1].episodes}", file=sys.stderr, flush=True)
        policies.write_card(msgspec.structs.replace(card, rates=rates), folder)


def _rate(policy: Path, console: str, conditions: Conditions) -> policies.Rate:
    metadata = policy_metadata(policy)
    game = game_of(metadata["game"])
    tasks = game.tasks_of(metadata[game.tasks])
    episodes = episodes_on_card(game, console, metadata[game.tasks])
    threads = thread_budget(episodes)
    torch.set_num_threads(threads.torch_threads)
    env = lanes_of_policy(
        metadata,
        episodes,
        threads=threads.lane_threads,
        seed=_SEED,
        emulator=console or None,
        noop_min=conditions.noop_min,
        noop_max=conditions.noop_max,
        sticky=conditions.sticky_actions,
        restart=False,
    )
    try:
        act = greedy_act(load_policy(policy))
        played = play_episodes(env, act, episodes, epsilon=conditions.epsilon, seed=_SEED)
    finally:
        env.close()
    outcome = game.outcome
    return policies.Rate(
        **msgspec.structs.asdict(conditions),
        console=console,
        episodes=episodes,
        clears=sum(episode.success for episode in played),
        mean_score=outcome.named(mean_results(played))["score"],
        clears_by_stage={
            task: sum(episode.success and episode.task_name(outcome) == task for episode in played) for task in tasks
        }
        if episodes == len(tasks) * EPISODES > EPISODES
        else {},
    )


def source_of(given: Path, name: str | None) -> tuple[Path, str, str, float]:
    """The policy file of a run's folder or a distilled policy; its name, command and minutes of training."""
    if given.is_file():
        said = policy_metadata(given)
        if "teachers" not in said or "minutes" not in said or name is None:
            raise UserError("RUN: must be a run's folder, or a policy of `mario-tui distill` and --name")
        return given, name, _distill_command(said), said["minutes"]
    run = Run(given.resolve())
    config, policy = run.config(), find_policy(str(run.path), str(run.path.parent))
    begun_with = config.initial_policy
    if begun_with is not None and policies.has_card(Path(begun_with).stem):
        begun_with = Path(begun_with).stem  # a card names no folder of a machine
    command = command_line(dataclasses.replace(config, run_dir=RunConfig.run_dir, initial_policy=begun_with))
    minutes = _minutes(run, policy_metadata(policy)["env_steps"])
    return policy, name or f"{config.game}-{config.task_label}", command, minutes


def _distill_command(said: dict[str, Any]) -> str:
    """The command of a distilled policy with this metadata; what a search was told is named if one was a teacher."""
    options = {"network": said["network"], "seed": said["seed"], **said.get("options", {})}
    game = game_of(said["game"])
    if game.distillation is not None and set(said["teachers"]) & set(game.distillation.searched):
        options |= game.search_options_of(said)
    named = (f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return " ".join(("mario-tui distill", *said["teachers"], *named))


def _minutes(run: Run, env_steps: int) -> float:
    """Minutes of training that a run took for `env_steps` environment steps."""
    points = [point for event in read_recording(run.history_path) if isinstance(event, Hello) for point in event.points]
    return next((point.wall_s for point in points if point.env_steps >= env_steps), run.record().wall_s) / 60


def _header(policy: Path) -> dict[str, str]:
    with safe_open(policy, "pt") as file:
        return dict(file.metadata())


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine.commands.release_policy", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", nargs="?", type=Path, help="a run's folder, or a distilled policy")
    parser.add_argument("--name", help="default: the game and its stage or board")
    parser.add_argument("--into", type=Path, default=policies.folder(), help="default: the package's folder")
    parser.add_argument(
        "--judge", action="store_true", help="play policies again under all conditions, and rewrite their cards"
    )
    parser.add_argument("--table", action="store_true", help="only print the tables")
    options = parser.parse_args()
    try:
        if options.judge:
            judge(options.into)
        elif not options.table:
            if options.run is None:
                raise UserError("RUN: specify the folder of a run, a distilled policy, --judge or --table")
            policy, name, command, minutes = source_of(options.run, options.name)
            ship(policy, options.into, name, command, minutes)
        print(leaderboard(options.into))
    except UserError as error:
        print(f"engine.commands.release_policy: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
