"""Plays episodes with a policy on many lanes at once, for evaluations during training and afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.agents.exploration import random_actions
from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.frame_stack import FrameStack
from engine.envs.lanes import Lanes
from engine.evaluation.policy import Act


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
    overrepresented. Lanes that have played theirs get random actions, which cost nothing.

    Args:
        epsilon: probability of a random legal action.
        on_episode: called with each counted episode when it ends, and the environment steps of all lanes so far.
    """
    random = np.random.default_rng(seed)
    each, more = divmod(episodes, env.lanes)
    quota = np.full(env.lanes, each)
    quota[:more] += 1
    stack, masks, played, steps = FrameStack(env.reset(), env.spec.stack), env.masks, list[EpisodeRecord](), 0
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
        for episode in ended_episodes(step):
            if quota[episode.lane] > 0:
                quota[episode.lane] -= 1
                on_episode(episode, steps * env.lanes)
                played.append(episode)
    return played
