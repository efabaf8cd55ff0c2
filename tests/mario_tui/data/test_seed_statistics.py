"""Statistics over few seeds: how often their 95 % intervals hold the true value."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from mario_tui.data.seed_statistics import Statistic, estimate, improvement, spread

PAGE = Path(__file__).parents[3] / "docs" / "sweeps.md"
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]


def _fails(random: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    return np.where(random.random(size) < 1 / 3, np.zeros(size), random.normal(15, 1, size))


RESULTS: dict[str, Draw] = {
    "normal": lambda random, size: random.normal(size=size),
    "gamma": lambda random, size: random.gamma(4, size=size),
    "exponential": lambda random, size: random.exponential(size=size),
    "one of three": _fails,
}
"""What seeds reach, by the first words of the documentation's table."""


@cache
def held(results: str, statistic: Statistic, seeds: int) -> float:
    """The share of intervals of so many seeds that hold the true value."""
    found = spread(RESULTS[results](np.random.default_rng(seeds), (20_000, seeds)), statistic)
    return float(np.mean(abs(found.value - _truth(results, statistic)) <= found.half_width))


@cache
def _truth(results: str, statistic: Statistic) -> float:
    values = np.sort(RESULTS[results](np.random.default_rng(0), (1_000_000,)))
    return float((values if statistic == "mean" else values[250_000:750_000]).mean())


@pytest.mark.parametrize("statistic", get_args(Statistic))
@pytest.mark.parametrize("results", ["normal", "gamma"])
def test_intervals_of_3_to_20_seeds_hold_the_true_value_in_93_of_100_cases(results: str, statistic: Statistic) -> None:
    assert min(held(results, statistic, seeds) for seeds in range(3, 21)) >= 0.93


def test_the_documentation_tells_how_often_intervals_hold_the_true_value() -> None:
    statistic: Statistic = "mean"
    found = []
    for line in PAGE.read_text().partition("### Intervals")[2].splitlines():
        if shares := [int(share) / 100 for share in re.findall(r"(\d+) % \|", line)]:
            statistic = "iqm" if "interquartile" in line else statistic
            (results,) = (name for name in RESULTS if re.search(rf"(^\| |: ){name}", line))
            found.append((results, statistic))
            assert shares == pytest.approx([held(results, statistic, n) for n in (3, 5, 10, 20)], abs=0.012), line
    assert found == [(results, statistic) for statistic in get_args(Statistic) for results in RESULTS]


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
