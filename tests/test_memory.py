"""Runs go on for weeks: what plays must not grow."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from engine.envs.mario import MarioLanes, MarioTask

SETTLED = 1_000_000  # environment steps after which everything that is allocated once has been


def growth(env_steps: int) -> tuple[int, int]:
    """Bytes of resident memory after so many environment steps more than after `SETTLED`; episodes played."""
    env = MarioLanes(MarioTask(stage="random", actions="complex", frame_skip=1), 256, threads=2)
    process, random, episodes, settled = psutil.Process(), np.random.default_rng(0), 0, 0
    env.reset()
    for step in range(env_steps // env.lanes):
        if step % 8 == 0:
            held = random.integers(0, env.actions, env.lanes)
        played = env.step(held)
        episodes += int((played.terminated | played.truncated).sum())
        if step == SETTLED // env.lanes:
            settled = process.memory_info().rss
    return process.memory_info().rss - settled, episodes


@pytest.mark.long
@pytest.mark.timeout(3600)  # 20 to 25 minutes on two threads
def test_resident_memory_stands_still_over_20_million_environment_steps() -> None:
    grown, episodes = growth(20_000_000)
    assert grown < 4 * 2**20
    assert episodes > 10_000
