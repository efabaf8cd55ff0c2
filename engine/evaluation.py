"""Episodes of a policy over many lanes at once: for a clear rate, while training or afterwards.

As a process of its own (`python -m engine.evaluation POLICY …`) it writes packed messages to its standard output: an
`Episode` for each one that ends, at the end `Evaluated`, or `Failed`. It ends with whoever holds its standard input.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

from engine import checkpoints
from engine.agents import make_network
from engine.agents.double_dqn import greedy
from engine.agents.networks import NETWORKS
from engine.envs.make import lanes_of_policy
from engine.envs.mario import rules
from engine.envs.stack import FrameStack
from engine.envs.step import Frames, Lanes
from engine.messages import Episode, Evaluated, EvaluationReport, pack
from engine.runners.actor import random_actions
from engine.runners.process import describe, end_with_stdin, killed_with_parent
from engine.threads import thread_budget

MAX_LANES = 256

Act = Callable[[Frames, NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions [lanes] for observations uint8 [lanes, stack, *frame_shape] among the legal ones, bool [lanes, actions]."""


class Played(Episode, frozen=True):
    """An episode with what Mario's clock said at its end."""

    time_left: int = 0


def play_episodes(
    env: Lanes,
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
        epsilon: probability of a random legal action instead.
        ended: called with each counted episode.
    """
    random = np.random.default_rng(seed)
    each, more = divmod(episodes, env.lanes)
    quota = np.full(env.lanes, each)
    quota[:more] += 1
    stack, masks, played, steps = FrameStack(env.reset(), env.spec.stack), env.masks, list[Played](), 0
    while (quota > 0).any():
        explore = random.random(env.lanes) < epsilon
        step = env.step(
            np.where(explore, random_actions(random, env.lanes, env.spec.actions, masks), act(stack.obs, masks))
        )
        masks = step.masks
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
                time_left=int(step.info[lane, rules.TIME]) if step.info.size else 0,
                score=int(step.scores[lane]),
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


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval (normal approximation; a single value is its own)."""
    mean = statistics.fmean(values)
    half = 1.959964 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return mean, mean - half, mean + half


def load_policy(path: Path) -> nn.Module:
    """The network of a policy file. Raises `CheckpointError` if this version has no such network."""
    said = checkpoints.policy_metadata(path)
    head, _, name = said["network"].partition("-")
    if head != "dueling" or name not in NETWORKS:
        known = ", ".join(f"dueling-{name}" for name in NETWORKS)
        raise checkpoints.CheckpointError(f"{path}: network {said['network']!r}; this version knows: {known}")
    network = make_network(name, said["stack"], tuple(said["frame_shape"]), said["outputs"])
    network.load_state_dict(load_file(path))
    return network.eval()


def greedy_act(network: nn.Module) -> Act:
    """What plays a network greedily on the CPU."""

    @torch.no_grad()
    def act(obs: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return greedy(network(torch.from_numpy(obs)), masks)

    return act


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
    killed_with_parent()
    end_with_stdin()
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
    lanes = min(MAX_LANES, options.episodes)
    threads = thread_budget(lanes)
    torch.set_num_threads(threads.torch_threads)
    env = lanes_of_policy(
        said,
        lanes,
        threads=threads.lane_threads,
        seed=options.seed,
        stage=options.stage,
        emulator=options.emulator,
        noop_max=options.noop_max,
        restart=options.episodes > lanes,
        rom=options.rom,
    )

    def tell_episode(played: Played) -> None:
        tell(Episode(**{name: getattr(played, name) for name in Episode.__struct_fields__}))

    played = play_episodes(
        env,
        greedy_act(load_policy(options.policy)),
        options.episodes,
        epsilon=options.epsilon,
        seed=options.seed,
        ended=tell_episode,
    )
    clears = sum(episode.flag for episode in played)
    low, high = wilson(clears, len(played))
    mean_score, *score_interval = mean_interval([episode.score for episode in played])

    def mean(name: str) -> float:
        return float(np.mean([getattr(episode, name) for episode in played]))

    tell(
        Evaluated(
            policy=str(options.policy),
            game=said["game"],
            stage=options.stage or said.get("stage", ""),
            emulator=options.emulator or said.get("emulator", ""),
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
            mean_score=mean_score,
            mean_score_low=score_interval[0],
            mean_score_high=score_interval[1],
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
