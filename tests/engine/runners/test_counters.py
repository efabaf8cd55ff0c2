"""The counters of a run and what they report."""

from __future__ import annotations

import math

import pytest

from engine.runners.coordination.stats import Counters
from engine.runs.checkpoint_state import KeptCounters


def left_s(
    counters: Counters, *, steps: int = 10**15, episodes: int | None = None, burnin_left: int = 0
) -> float | None:
    return counters.report(
        state="running", steps=steps, episodes=episodes, updates=1, epsilon=0.1, random_share=0.1, learning_rate=0.1,
        replay_size=1, replay_capacity=2, beta=0.4, burnin_left=burnin_left,
    ).remaining_s  # fmt: skip


def test_a_run_with_a_number_of_episodes_is_as_long_as_these() -> None:
    counters = Counters(KeptCounters(env_steps=900, wall_s=100.0))
    counters.stop_clock()
    assert left_s(counters, episodes=20) is None
    counters.env_steps += 1
    assert left_s(counters) is not None and left_s(counters, burnin_left=10) is None
    assert left_s(counters, episodes=20) is None  # no episode has ended yet, so nobody knows
    for _ in range(5):
        counters.record_episode(1.0)
    assert left_s(counters, episodes=20) == pytest.approx(300, rel=0.01)
    assert left_s(counters, episodes=5) == 0
    assert left_s(counters, steps=901, episodes=20) == 0


def test_reports_in_a_pause_are_not_kept() -> None:
    counters = Counters(KeptCounters(env_steps=900, wall_s=100.0))
    counters.stop_clock()
    for _ in range(10):
        left_s(counters)
    assert len(counters._marks) == 1


def test_a_return_that_is_not_finite_is_left_out_of_the_mean_until_there_are_no_others() -> None:
    counters = Counters()
    assert math.isnan(counters.mean_return)
    for value in (1.0, math.nan, 3.0):
        counters.record_episode(value)
    assert (counters.mean_return, counters.best_return, counters.episodes) == (2.0, 3.0, 3)
    for _ in range(100):
        counters.record_episode(math.nan)
    assert counters.mean_return == math.inf
