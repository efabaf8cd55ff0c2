"""Adds a run's best policy and its card to the policies that come with the package.

    python -m engine.commands.release_policy RUN

The weights are stored as float16 if the policy plays as well with them. `--table` only prints the leaderboard.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
from pathlib import Path

import psutil
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine import __version__
from engine.config.command_line import command_line
from engine.config.run_config import RunConfig
from engine.envs.factory import lanes_of_policy
from engine.errors import UserError
from engine.evaluation.episodes import play_episodes
from engine.evaluation.policy import greedy_act, load_policy
from engine.protocol.messages import Hello
from engine.runs import policies
from engine.runs.checkpoints import find_policy, policy_metadata
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runtime.threads import available_cores, thread_budget

EPISODES, NOOP_MAX = 100, 30


def ship(policy: Path, into: Path, name: str, command: str, minutes: float) -> policies.Card:
    """Store a policy as `name` and write its card. Raises `UserError` if the file is not a policy."""
    metadata = policy_metadata(policy)
    target = into / f"{name}.safetensors"
    into.mkdir(parents=True, exist_ok=True)
    whole = _rate(policy, "native" if metadata["game"] == "mario" else "")
    header = _header(policy)
    save_file({key: tensor.half() for key, tensor in load_file(policy).items()}, target, header)
    half = _rate(target, whole.console)
    dtype = "float16"
    worse = half.clears < whole.clears if metadata["game"] == "mario" else half.mean_score < 0.95 * whole.mean_score
    if worse:
        save_file(load_file(policy), target, header)
        half, dtype = whole, "float32"
    rates = [half] + ([_rate(target, "nes-py")] if metadata["game"] == "mario" else [])
    card = policies.Card(
        name=name,
        game=metadata["game"],
        stage=metadata.get("stage") or metadata["board"],
        command=command,
        seed=metadata["seed"],
        env_steps=metadata["env_steps"],
        minutes=minutes,
        machine=f"{available_cores()} cores, {platform.machine()}, {psutil.virtual_memory().total >> 30} GiB",
        version=__version__,
        torch=str(torch.__version__),
        dtype=dtype,
        rates=rates,
    )
    policies.write_card(card, into)
    return card


def _rate(policy: Path, console: str) -> policies.Rate:
    metadata = policy_metadata(policy)
    threads = thread_budget(EPISODES).lane_threads
    env = lanes_of_policy(
        metadata, EPISODES, threads=threads, seed=1, emulator=console or None, noop_max=NOOP_MAX, restart=False
    )
    try:
        played = play_episodes(env, greedy_act(load_policy(policy)), EPISODES)
    finally:
        env.close()
    return policies.Rate(
        console=console,
        episodes=EPISODES,
        noop_max=NOOP_MAX if metadata["game"] == "mario" else 0,
        clears=sum(episode.flag for episode in played),
        mean_score=sum(episode.score for episode in played) / EPISODES,
    )


def _minutes(run: Run, env_steps: int) -> float:
    """Minutes of training that a run took for `env_steps` environment steps."""
    points = [point for event in read_recording(run.history_path) if isinstance(event, Hello) for point in event.points]
    return next((point.wall_s for point in points if point.env_steps >= env_steps), run.record().wall_s) / 60


def _header(policy: Path) -> dict[str, str]:
    with safe_open(policy, "pt") as file:
        return dict(file.metadata())


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine.commands.release_policy", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", nargs="?", type=Path, help="the run's folder")
    parser.add_argument("--name", help="default: the game and its stage or board")
    parser.add_argument("--into", type=Path, default=policies.folder(), help="default: the package's folder")
    parser.add_argument("--table", action="store_true", help="only print the leaderboard")
    options = parser.parse_args()
    try:
        if not options.table:
            if options.run is None:
                raise UserError("RUN: specify the folder of a run, or --table")
            run = Run(options.run.resolve())
            config, policy = run.config(), find_policy(str(run.path), str(run.path.parent))
            name = options.name or f"{config.game}-{config.board or config.stage}"
            command = command_line(dataclasses.replace(config, run_dir=RunConfig.run_dir))
            ship(policy, options.into, name, command, _minutes(run, policy_metadata(policy)["env_steps"]))
        print(policies.leaderboard(options.into))
    except UserError as error:
        print(f"engine.commands.release_policy: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
