"""Statistics over few seeds: how often their 95 % intervals hold the true value."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from mario_tui.data.seed_statistics import Statistic, spread

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
