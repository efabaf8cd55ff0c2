"""Action noise: random actions are carried out, and the replay gets what was chosen."""

from __future__ import annotations

import numpy as np
import torch

from engine.envs.lanes import Frames
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.runners.actor import Actor

LANES, NOOP = 12, 0


def stands_still(obs: Frames) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.full((LANES,), NOOP), 5).float()


def test_noise_replaces_what_is_carried_out_and_the_replay_gets_what_was_chosen() -> None:
    env = MarioLanes(MarioTask(noop_max=5, stall_steps=20), LANES, seed=2)
    actor = Actor(env, ladder=np.zeros(LANES), epsilon_steps=1, seed=3, noise=0.3)
    others = 0
    for _ in range(40):
        actions = actor.choose(stands_still, 10)
        actor.finish(actor.begin(actions))
        assert (actions == NOOP).all()
        others += int((env.book[:, rules.BUTTONS] != 0).sum())
    assert 60 < others < 170  # 115 expected: 0.3 of 480, less the fifth that draws the same action
    actor.close()
