"""Exploration: what epsilon means for the share of random steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.agents.exploration import Holds
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.runners.actor import Actor


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 0.6), (0.4, 1 / 3), (0.2, 0.19), (0.0, 0.0)])
def test_holds_of_up_to_eight_steps_make_fewer_steps_random_than_epsilon_says(epsilon: float, share: float) -> None:
    assert Holds(8, 0).random_share(np.array([epsilon])) == pytest.approx(share, abs=0.002)
    assert Holds(1, 2).random_share(np.array([epsilon])) == pytest.approx(epsilon)


@pytest.mark.parametrize("game", ["mario", "snake", "gym:MountainCar-v0"])
def test_an_actor_plays_the_share_of_random_steps_that_is_shown(game: str) -> None:
    config = make_config({"game": game} | ({"random_hold": 64} if game.startswith("gym") else {}))
    ladder = np.repeat([0.4, 0.1], 8)
    env = make_lanes(config, len(ladder), threads=1, seed=0)
    actor = Actor(env, ladder=ladder, epsilon_steps=1, seed=0)
    random = np.zeros(len(ladder))
    steps = 4000 if game.startswith("gym") else 1000  # some holds are long
    for _ in range(steps):
        actions = actor.choose(lambda obs: torch.zeros(len(obs), env.spec.actions), env_steps=1)
        assert actor.decision is not None
        random += actor.decision.random
        actor.finish(actor.begin(actions))
    actor.close()
    shown = Holds(env.spec.hold, env.spec.hold_power).random_share(ladder)
    assert random[:8].mean() / steps == pytest.approx(shown[0], rel=0.1)
    assert random[8:].mean() / steps == pytest.approx(shown[-1], rel=0.15)


def test_short_holds_are_the_rule_and_long_ones_the_exception() -> None:
    lengths = Holds(64, 2).drawn(np.random.default_rng(0), 100_000)
    assert lengths.min() == 1 and lengths.max() == 64
    shares = np.bincount(lengths, minlength=65)[1:] / len(lengths)
    assert shares[:3] == pytest.approx(shares[0] / np.array([1, 4, 9]), rel=0.05)
