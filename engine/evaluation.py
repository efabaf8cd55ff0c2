"""Episodes of a policy over many lanes at once: for a clear rate, while training or afterwards.

As a process of its own (`python -m engine.evaluation POLICY …`) it writes packed messages to its standard output: an
`Episode` for each one that ends, at the end `Evaluated`, or `Failed`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from engine import checkpoints
from engine.agents import DuelingQNetwork
from engine.envs.make import task_of_policy
from engine.envs.mario import MarioLanes, rules
from engine.envs.stack import FrameStack
from engine.messages import Episode, Evaluated, EvaluationReport, pack
from engine.runners.process import describe
from engine.threads import thread_budget

MAX_LANES = 256

Act = Callable[[NDArray[np.uint8]], NDArray[np.int64]]


class Played(Episode, frozen=True):
    """An episode with what the game's status bar said at its end."""

    time_left: int
    score: int


def play_episodes(
    env: MarioLanes,
    act: Act,
    episodes: int,
    *,
    epsilon: float = 0.0,
    seed: int = 0,
    ended: Callable[[Played], None] = lambda _: None,
) -> list[Played]:
    """Play until `episodes` have ended; those begun in excess are not counted.

    Every lane plays the same number, one more at most: otherwise short episodes would count more often.

    Args:
        act: actions [lanes] for observations uint8 [lanes, stack, height, width].
        epsilon: probability of a random action instead.
        ended: called with each counted episode.
    """
    random = np.random.default_rng(seed)
    each, more = divmod(episodes, env.lanes)
    quota = np.full(env.lanes, each)
    quota[:more] += 1
    stack, played, steps = FrameStack(env.reset()), list[Played](), 0
    while (quota > 0).any():
        explore = random.random(env.lanes) < epsilon
        step = env.step(np.where(explore, random.integers(0, env.actions, env.lanes), act(stack.obs)))
        over = step.terminated | step.truncated
        stack.push(step.frames, over)
        steps += 1
        for lane in np.flatnonzero(over & (quota > 0)).tolist():
            quota[lane] -= 1
            episode = Played(
                actor=0,
                lane=lane,
                env_steps=steps * env.lanes,
                episode=len(played) + 1,
                episode_return=float(step.returns[lane]),
                length=int(step.lengths[lane]),
                x_pos=int(step.furthest[lane]),
                flag=bool(step.clears[lane]),
                epsilon=epsilon,
                time_left=int(step.info[lane, rules.TIME]),
                score=int(step.info[lane, rules.SCORE]),
            )
            ended(episode)
            played.append(episode)
    return played


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z, rate = 1.959964, successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    low = centre - half if successes > 0 else 0.0  # exact at the ends, where rounding would leave a trace
    high = centre + half if successes < trials else 1.0
    return low, high


def load_policy(path: Path) -> DuelingQNetwork:
    """The network of a policy file. Raises `CheckpointError` if this version has no such network."""
    said = checkpoints.policy_metadata(path)
    if said["network"] != "dueling":
        raise checkpoints.CheckpointError(f"{path}: network {said['network']!r}; this version knows: dueling")
    height, width = said["frame_shape"]
    network = DuelingQNetwork(said["stack"], (height, width), len(said["actions"]))
    network.load_state_dict(load_file(path))
    return network.eval()


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="engine.evaluation")
    parser.add_argument("policy", type=Path)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--noop-max", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--stage")
    parser.add_argument("--emulator")
    parser.add_argument("--rom", type=Path)
    options = parser.parse_args()
    tell = take_stdout()
    try:
        _evaluate(options, tell)
    except BrokenPipeError:
        os._exit(0)  # the reader has seen enough; nothing may be flushed any more
    except Exception as error:
        tell(describe(error))
        return 1
    return 0


def _evaluate(options: argparse.Namespace, tell: Callable[[EvaluationReport], None]) -> None:
    started = time.monotonic()
    said = checkpoints.policy_metadata(options.policy)
    stage, emulator = options.stage or said["stage"], options.emulator or said["emulator"]
    lanes = min(MAX_LANES, options.episodes)
    threads = thread_budget(lanes)
    torch.set_num_threads(threads.torch_threads)
    network = load_policy(options.policy)
    task = task_of_policy(said, stage=stage, noop_max=options.noop_max)
    env = MarioLanes(task, lanes, emulator=emulator, threads=threads.lane_threads, seed=options.seed, rom=options.rom)

    @torch.no_grad()
    def act(obs: NDArray[np.uint8]) -> NDArray[np.int64]:
        return network(torch.from_numpy(obs)).argmax(1).numpy()

    def tell_episode(played: Played) -> None:
        tell(Episode(**{name: getattr(played, name) for name in Episode.__struct_fields__}))

    played = play_episodes(
        env,
        act,
        options.episodes,
        epsilon=options.epsilon,
        seed=options.seed,
        ended=tell_episode,
    )
    clears = sum(episode.flag for episode in played)
    low, high = wilson(clears, len(played))

    def mean(name: str) -> float:
        return float(np.mean([getattr(episode, name) for episode in played]))

    tell(
        Evaluated(
            policy=str(options.policy),
            stage=stage,
            emulator=emulator,
            episodes=len(played),
            epsilon=options.epsilon,
            noop_max=options.noop_max,
            clears=clears,
            clear_rate=clears / len(played),
            clear_rate_low=low,
            clear_rate_high=high,
            mean_return=mean("episode_return"),
            mean_x_pos=mean("x_pos"),
            mean_length=mean("length"),
            mean_time_left=mean("time_left"),
            mean_score=mean("score"),
            seconds=time.monotonic() - started,
        )
    )


def take_stdout() -> Callable[[EvaluationReport], None]:
    """A function that writes messages; what libraries print goes to stderr from now on, not between the messages."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(report: EvaluationReport) -> None:
        stream.write(pack(report))
        stream.flush()

    return tell


if __name__ == "__main__":
    sys.exit(main())
