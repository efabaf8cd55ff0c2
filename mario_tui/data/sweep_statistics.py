"""Statistics over the seeds of settings, with 95 % intervals by bootstrap over seeds (Agarwal et al. 2021,
arXiv:2108.13264): percentiles of the statistic of resampled seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RESAMPLES = 2000
_REMEMBERED = 4096
"""A live table asks for the estimates of the same values again and again."""
Statistic = Literal["mean", "iqm"]
"""`iqm`: the interquartile mean."""
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
    mean, middle = estimate((known,)), estimate((known,), "iqm")
    return mean and middle and Interval(mean.value, middle.value, mean.low, mean.high, len(known))


@lru_cache(_REMEMBERED)
def estimate(samples: tuple[Sample, ...], statistic: Statistic = "mean") -> Estimate | None:
    """A statistic of all runs of one or several settings; None without any run. Seeds are resampled within their
    setting, so the interval tells how much depends on the seeds, not how far the settings are apart."""
    import numpy as np  # here, so that commands without sweeps start without it

    samples = tuple(filter(None, samples))
    if not samples:
        return None
    value = float(statistic_of(np.concatenate(samples), statistic))
    if min(map(len, samples)) < 2:
        return Estimate(value)
    return Estimate(value, *_interval(statistic_of(np.hstack(_resampled(samples)), statistic)))


@lru_cache(_REMEMBERED)
def improvement(ours: Sample, theirs: Sample) -> Estimate | None:
    """The probability that a run of ours is better than one of theirs; ties count half (Agarwal et al. 2021). None if
    either sample is empty."""
    if not ours or not theirs:
        return None
    pairs = [(our > their) + 0.5 * (our == their) for our in ours for their in theirs]
    if min(len(ours), len(theirs)) < 2:
        return Estimate(statistics.fmean(pairs))
    our, their = (sample[:, :, None] for sample in _resampled((ours, theirs)))
    their = their.swapaxes(1, 2)  # [resamples, 1, runs]
    found = ((our > their) + 0.5 * (our == their)).mean(axis=(1, 2))
    return Estimate(statistics.fmean(pairs), *_interval(found))


def statistic_of(values: NDArray[np.float64], statistic: Statistic) -> NDArray[np.float64]:
    """The statistic over the last axis. Of the interquartile mean, the middle half counts, and the values at its
    borders in part."""
    if statistic == "mean":
        return values.mean(axis=-1)
    import numpy as np

    count = values.shape[-1]
    places, cut = np.arange(count), count / 4
    weights = np.clip(np.minimum(places + 1, count - cut) - np.maximum(places, cut), 0, None)
    return np.sort(values, axis=-1) @ (weights / weights.sum())


def _resampled(samples: Sequence[Sample]) -> list[NDArray[np.float64]]:
    """Of each sample: resamples, which are the same every time, as `[resamples, runs]`."""
    import numpy as np

    random = np.random.default_rng(0)
    return [np.array(each)[random.integers(len(each), size=(_RESAMPLES, len(each)))] for each in samples]


def _interval(found: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % percentile interval."""
    import numpy as np

    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)
