"""Estimates over few seeds: means of several settings, and how often one setting is better than another."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from mario_tui.extras.sweeps.results import estimate, improvement


@pytest.mark.parametrize("sizes", [(4, 4), (5, 5), (3, 5), (2, 8), (6, 6)])
def test_equal_settings_are_seldom_told_apart(sizes: tuple[int, int]) -> None:
    """Of all ways in which their runs can be ranked."""
    runs, excluded = frozenset(range(sum(sizes))), []
    for ours in itertools.combinations(sorted(runs), sizes[0]):
        found = improvement(tuple(map(float, ours)), tuple(map(float, sorted(runs.difference(ours)))))
        assert found is not None and found.low is not None and found.high is not None
        assert 0 <= found.low <= found.value <= found.high <= 1
        excluded.append(not found.low <= 0.5 <= found.high)
    assert 0 < statistics.fmean(excluded) < 0.06


@pytest.mark.parametrize("sizes", [(1, 9), (2, 7), (3, 3), (3, 4)])
def test_with_too_few_seeds_an_improvement_is_not_known(sizes: tuple[int, int]) -> None:
    ours, theirs = (tuple(float(run + 10 * at) for run in range(size)) for at, size in enumerate(sizes))
    assert improvement(theirs, ours) == (1, None, None) and improvement(ours, theirs) == (0, None, None)


@pytest.mark.parametrize("apart", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seeds", [4, 10])
def test_the_interval_of_an_improvement_holds_the_true_one(seeds: int, apart: float) -> None:
    random, truth, holds = np.random.default_rng(seeds), statistics.NormalDist().cdf(apart / 2**0.5), []
    for ours, theirs in zip(random.normal(apart, 1, (1000, seeds)), random.normal(0, 1, (1000, seeds)), strict=True):
        found = improvement(tuple(sorted(ours)), tuple(sorted(theirs)))
        assert found is not None and found.low is not None and found.high is not None
        holds.append(found.low <= truth <= found.high)
    assert statistics.fmean(holds) >= 0.93


def test_a_setting_improves_on_another_by_the_plain_definition() -> None:
    """In all pairs, with ties."""
    random = np.random.default_rng(5)
    ours, theirs = (tuple(sorted(random.integers(9, size=count).astype(float))) for count in (8, 6))
    pairs = itertools.product(ours, theirs)
    found = improvement(ours, theirs)
    assert found is not None
    assert found.value == statistics.fmean((one > other) + 0.5 * (one == other) for one, other in pairs)
    assert improvement((), (1.0,)) is None


def test_means_and_intervals_over_seeds() -> None:
    def middle(*values: float) -> float | None:
        found = estimate((values,), "iqm")
        return None if found is None else found.value

    assert middle(3, 1, 100, 2) == pytest.approx(2.5) and middle(5.0) == 5
    assert middle(1, 2, 3, 4, 100) == pytest.approx((0.75 * 2 + 3 + 0.75 * 4) / 2.5)
    assert estimate(((),)) is None and estimate(((2.0,),)) == (2, None, None)
    assert estimate(((1.0, 3.0),)) == (2, None, None)  # two seeds say too little
    assert estimate(((1.0, 2.0, 4.0),)) == pytest.approx((2.333, -1.461, 6.128), abs=0.001)  # 2 degrees of freedom
    assert estimate(((1.0, 3.0), (5.0,)), "iqm") == (3.0, None, None)


def test_the_interval_of_several_settings_is_within_them_not_between_them() -> None:
    settings = ((1.0, 2.0, 3.0), (11.0, 12.0, 13.0), (5.0, 5.0, 5.0))
    # Two of the three means vary, with 2 degrees of freedom each, so their sum has 4: 2.776.
    half = 2.776 * (2 * (1 / 3) ** 2 * 1 / 3) ** 0.5
    assert estimate(settings) == pytest.approx((19 / 3, 19 / 3 - half, 19 / 3 + half), abs=0.001)
