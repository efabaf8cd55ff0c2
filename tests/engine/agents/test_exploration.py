"""Exploration: what epsilon means for the share of random steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.agents.exploration import random_share
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.runners.actor import Actor


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 0.6), (0.4, 1 / 3), (0.2, 0.19), (0.0, 0.0)])
def test_holds_of_up_to_eight_steps_make_fewer_steps_random_than_epsilon_says(epsilon: float, share: float) -> None:
    assert random_share(np.array([epsilon]), 8) == pytest.approx(share, abs=0.002)
    assert random_share(np.array([epsilon]), 1) == pytest.approx(epsilon)


@pytest.mark.parametrize("game", ["mario", "snake"])
def test_an_actor_plays_the_share_of_random_steps_that_is_shown(game: str) -> None:
    config = make_config({"game": game})
    ladder = np.repeat([0.4, 0.1], 8)
    env = make_lanes(config, len(ladder), threads=1, seed=0)
    actor = Actor(env, ladder=ladder, epsilon_steps=1, seed=0)
    random = np.zeros(len(ladder))
    for _ in range(1000):
        actions = actor.choose(lambda obs: torch.zeros(len(obs), env.spec.actions), env_steps=1)
        assert actor.decision is not None
        random += actor.decision.random
        actor.finish(actor.begin(actions))
    actor.close()
    shown = random_share(ladder, env.spec.hold)
    assert random[:8].mean() / 1000 == pytest.approx(shown[0], rel=0.1)
    assert random[8:].mean() / 1000 == pytest.approx(shown[-1], rel=0.15)
