"""Plays episodes with a policy on many lanes at once, for evaluations during training and afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.agents.exploration import random_actions
from engine.envs.frame_stack import FrameStack
from engine.envs.mario import rules
from engine.envs.vec_env import Lanes
from engine.evaluation.policy import Act
from engine.protocol.messages import Episode


class PlayedEpisode(Episode, frozen=True):
    """An episode with the time left on Mario's clock at its end."""

    time_left: int = 0  # in units of the game's clock; 0 for board games


def play_episodes(
    env: Lanes,
    act: Act,
    episodes: int,
    *,
    epsilon: float = 0.0,
    seed: int = 0,
    on_episode: Callable[[PlayedEpisode], None] = lambda _: None,
) -> list[PlayedEpisode]:
    """Play `episodes` episodes and return them in the order in which they end.

    All lanes play the same number of counted episodes, give or take one; otherwise short episodes would be
    overrepresented. Further episodes of lanes that are done are not counted.

    Args:
        epsilon: probability of a random legal action.
        on_episode: called with each counted episode when it ends.
    """
    random = np.random.default_rng(seed)
    each, more = divmod(episodes, env.lanes)
    quota = np.full(env.lanes, each)
    quota[:more] += 1
    stack, masks, played, steps = FrameStack(env.reset(), env.spec.stack), env.masks, list[PlayedEpisode](), 0
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
            episode = PlayedEpisode(
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
            on_episode(episode)
            played.append(episode)
    return played
