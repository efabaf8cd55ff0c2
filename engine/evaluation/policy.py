"""Load the network of a policy file, play episodes with it, and score them: means, rates and their 95 % intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents.dueling import Head
from engine.agents.exploration import greedy, random_actions
from engine.agents.networks import make_network
from engine.agents.weights import load_weights, policy_weights
from engine.config.game import game_of
from engine.envs.episode import EpisodeRecord, add_cleared, ended_episodes, mean_results
from engine.envs.lanes import Frames, FrameStack, Lanes
from engine.protocol.outcome import Outcome
from engine.protocol.results import TaskScore
from engine.runs import checkpoints
from engine.runtime.students_t import half_width

Act = Callable[[Frames, NDArray[np.bool_] | None], NDArray[np.int64]]
"""Actions [lanes] of some of the lanes, for their observations uint8 [lanes, stack, *frame_shape] among the legal ones,
bool [lanes, actions]."""


def load_policy(path: Path, network: str | None = None) -> nn.Module:
    """The network of a policy file, in evaluation mode on the CPU. `network`: its name, if not that of the metadata.

    Raises `CheckpointError` if the file is not a policy, is damaged, or needs a network that this version does not
    have.
    """
    metadata = checkpoints.policy_metadata(path)
    shape = (metadata["stack"], tuple(metadata["frame_shape"]), metadata["outputs"])
    game = game_of(metadata["game"])
    name, raw = network or metadata["network"], {key: metadata[key] for key in ("normalized", "numbers")}
    head = Head(metadata["quantiles"], metadata["noisy"])
    made = make_network(name, *shape, own=game.own_networks, **raw, head=head)
    load_weights(made, policy_weights(path), path)
    return made.eval()


def greedy_act(network: nn.Module) -> Act:
    """A function that chooses a network's greedy actions on the CPU."""

    @torch.no_grad()
    def act(obs: NDArray[np.uint8], masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return greedy(network(torch.from_numpy(obs)), masks)

    return act


def values_of(network: nn.Module) -> Callable[[Frames], NDArray[np.float32]]:
    """A function that computes a network's Q-values [lanes, actions] on the CPU."""

    @torch.no_grad()
    def values(obs: Frames) -> NDArray[np.float32]:
        return network(torch.from_numpy(obs)).float().numpy()

    return values


def play_episodes(
    env: Lanes,
    act: Act,
    episodes: int,
    *,
    epsilon: float = 0.0,
    seed: int = 0,
    on_episode: Callable[[EpisodeRecord, int], None] = lambda *_: None,
) -> list[EpisodeRecord]:
    """Play `episodes` episodes and return them in the order in which they end.

    All lanes play the same number of episodes that count, give or take one; otherwise short episodes would be
    overrepresented. Lanes that have played theirs rest, or get random actions where these cost nothing.

    Args:
        epsilon: probability of a random legal action.
        on_episode: called with each counted episode when it ends, and the environment steps so far of lanes that had
            not played theirs.
    """
    random = np.random.default_rng(seed)
    each, more = divmod(episodes, env.lanes)
    quota = np.full(env.lanes, each)
    quota[:more] += 1
    stack, masks, played, steps = FrameStack(env.reset(), env.spec.stack), env.masks, list[EpisodeRecord](), 0
    cleared = np.zeros(env.lanes, np.int64)
    env.rest_after(quota <= 1)
    while (unfinished := quota > 0).any():
        explore = random.random(env.lanes) < epsilon
        actions = random_actions(random, env.lanes, env.spec.actions, masks)
        chosen = act(stack.obs[unfinished], None if masks is None else masks[unfinished])
        actions[unfinished] = np.where(explore[unfinished], actions[unfinished], chosen)
        step = env.step(actions)
        masks = step.masks
        over = step.terminated | step.truncated
        stack.push(step.frames, over)
        steps += 1
        add_cleared(cleared, step)
        for episode in ended_episodes(step, cleared):
            if quota[episode.lane] > 0:
                quota[episode.lane] -= 1
                on_episode(episode, steps * env.lanes)
                played.append(episode)
        cleared[over] = 0
    return played


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % score interval (low, high) of a rate (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953)."""
    z, rate = 1.959964, successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    low = centre - half if successes > 0 else 0.0  # exact at both ends, where rounding errors would remain
    high = centre + half if successes < trials else 1.0
    return low, high


def score_of(task: str, outcome: Outcome, played: Sequence[EpisodeRecord]) -> TaskScore:
    """The score of the episodes of one task of a game with this outcome."""
    return TaskScore(
        task=task,
        episodes=len(played),
        clears=sum(episode.success for episode in played),
        mean_return=statistics.fmean(episode.episode_return for episode in played),
        results=outcome.named(mean_results(played)),
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, low and high end of its 95 % interval (Student's t). The ends are NaN for a single value."""
    mean, half = statistics.fmean(values), half_width(values)
    return mean, mean - half, mean + half
