"""Statistics over the seeds of settings, with 95 % intervals by bootstrap over seeds (Agarwal et al. 2021,
arXiv:2108.13264): percentiles of the statistic of resampled seeds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple

_RESAMPLES = 2000
_REMEMBERED = 4096
"""A live table asks for the estimates of the same values again and again."""
Statistic = Literal["mean", "iqm"]
STATISTICS: dict[Statistic, str] = {"mean": "mean", "iqm": "interquartile mean"}
Sample = tuple[float, ...]
"""What the seeds of one setting have reached."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval; both ends are None for a single seed."""

    mean: float
    iqm: float
    low: float | None
    high: float | None
    count: int


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; both ends are None if a setting has a single seed."""

    value: float
    low: float | None = None
    high: float | None = None


def interval(values: Sequence[float | None]) -> Interval | None:
    """Of those values that are known; None if none is."""
    known = tuple(sorted(value for value in values if value is not None))
    mean = estimate((known,))
    return None if mean is None else Interval(mean.value, interquartile_mean(known), mean.low, mean.high, len(known))


@lru_cache(_REMEMBERED)
def estimate(samples: tuple[Sample, ...], statistic: Statistic = "mean") -> Estimate | None:
    """A statistic of all runs of one or several settings; None without any run. Seeds are resampled within their
    setting, so the interval tells how much depends on the seeds, not how far the settings are apart."""
    samples = tuple(filter(None, samples))
    if not samples:
        return None

    def of(found: Sequence[Sequence[float]]) -> float:
        pooled = [*chain.from_iterable(found)]
        return statistics.fmean(pooled) if statistic == "mean" else interquartile_mean(sorted(pooled))

    return _with_interval(samples, of)


@lru_cache(_REMEMBERED)
def improvement(ours: Sample, theirs: Sample) -> Estimate | None:
    """`probability_of_improvement`; None if either sample is empty."""
    if not ours or not theirs:
        return None
    return _with_interval((ours, theirs), lambda found: probability_of_improvement(*found))


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half of sorted values; those at its borders count in part."""
    weights = interquartile_weights(len(values))
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


@lru_cache(_REMEMBERED)
def interquartile_weights(count: int) -> list[float]:
    """The share of each of `count` sorted values that lies in their middle half."""
    cut = count / 4
    return [max(0.0, min(place + 1, count - cut) - max(place, cut)) for place in range(count)]


def bootstrap(
    samples: Sequence[Sequence[float]], statistic: Callable[[Sequence[Sequence[float]]], float]
) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic of samples over resamples of each, which are the same every time."""
    source = random.Random(0)
    found = sorted(statistic([source.choices(sample, k=len(sample)) for sample in samples]) for _ in range(_RESAMPLES))
    return found[round(0.025 * (_RESAMPLES - 1))], found[round(0.975 * (_RESAMPLES - 1))]


def probability_of_improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The probability that a run of ours is better than one of theirs; ties count half (Agarwal et al. 2021)."""
    pairs = [(our > their) + 0.5 * (our == their) for our in ours for their in theirs]
    return statistics.fmean(pairs)


def _with_interval(samples: tuple[Sample, ...], of: Callable[[Sequence[Sequence[float]]], float]) -> Estimate:
    if min(map(len, samples)) < 2:
        return Estimate(of(samples))
    return Estimate(of(samples), *bootstrap(samples, of))
