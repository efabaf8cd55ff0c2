"""What is learned, and counted, of an environment that raises in a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.buffers import PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.config.reading import make_config
from engine.envs.factory import make_lanes
from engine.envs.lanes import on_host
from engine.runners.actor import Actor
from engine.runs.replay_file import ReplayShape
from tests.support.gym_envs import CRASHING

pytestmark = pytest.mark.process

GAMMA = 0.5
RING: dict[str, Any] = {"lanes": 2, "capacity": 100, "frame_shape": (1,), "stack": 2, "frame_dtype": "float32"}
Transition = tuple[tuple[float, ...], float, tuple[float, ...], float]
"""Observation, return, next observation (empty after a termination) and discount."""


def replay_of(kind: str, n_step: int) -> Replay:
    if kind == "device":
        return DeviceReplayBuffer(ReplayShape(**RING, n_step=n_step), gamma=GAMMA, device=torch.device("cpu"))
    buffer = PrioritizedReplayBuffer if kind == "prioritized" else ReplayBuffer
    return buffer(ReplayShape(**RING, n_step=n_step), gamma=GAMMA)


def whole(length: int, n_step: int, *, terminates: bool) -> set[Transition]:
    """All transitions of an episode of `length` steps; each costs 1 and shows its number."""
    found: set[Transition] = set()
    for first in range(length):
        last = min(first + n_step, length)
        total = -sum(GAMMA**k for k in range(last - first))
        ends = terminates and last == length
        seen, after = ((max(0.0, number - 1.0), float(number)) for number in (first, last))
        found.add((seen, total, () if ends else after, 0.0 if ends else GAMMA ** (last - first)))
    return found


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "device"])
def test_nothing_is_learned_from_a_step_that_failed(kind: str, n_step: int) -> None:
    lanes = make_lanes(make_config({"game": CRASHING, "frame_stack": 2}), 2, threads=1, seed=0)
    actor = Actor(lanes, ladder=np.zeros(2), epsilon_steps=1, seed=0)
    replay, counted = replay_of(kind, n_step), []
    for _ in range(60):
        frames, actions = actor.frames, actor.choose(lambda obs: torch.zeros(2, 2), 0)
        step, episodes = actor.finish(actor.begin(actions))
        replay.append(step.played(frames, actions, None))
        counted += episodes
    actor.close()
    batch, _ = replay.sample(2000, np.random.default_rng(0))
    found: set[Transition] = set()
    for fields in zip(
        *(on_host(each) for each in (batch.obs, batch.returns, batch.next_obs, batch.discounts)), strict=True
    ):
        seen, total, after, discount = (np.ravel(field).tolist() for field in fields)
        found.add((tuple(seen), total[0], tuple(after) if discount[0] else (), discount[0]))
    assert found == whole(6, n_step, terminates=True) | whole(3, n_step, terminates=False)
    assert {(episode.length, episode.episode_return) for episode in counted} == {(6, -6.0)}
