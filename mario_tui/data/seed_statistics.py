"""Statistics over the seeds of settings, with 95 % intervals for samples as small as a sweep has: Student's t for means
and interquartile means, a score interval for the probability of improvement.

A bootstrap over so few seeds holds the true mean far less often than it says. docs/sweeps.md tells how often these do.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from engine.runtime.students_t import half_width_of_sum, quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SEEDS = 3
"""With fewer there is no interval: that of two is thirteen times as wide as they are apart."""
_NORMAL = 1.959964
_REMEMBERED = 4096
"""A live table asks for the estimates of the same values again and again."""
Statistic = Literal["mean", "iqm"]
"""`iqm`: the interquartile mean (Agarwal et al. 2021, arXiv:2108.13264)."""
Sample = tuple[float, ...]
"""What the seeds of one setting have reached, in increasing order."""


class Estimate(NamedTuple):
    """A statistic with its 95 % interval; both ends are None if there are too few seeds for one."""

    value: float
    low: float | None = None
    high: float | None = None


@lru_cache(_REMEMBERED)
def estimate(samples: tuple[Sample, ...], statistic: Statistic = "mean") -> Estimate | None:
    """The statistic of one setting, or the mean of that of several, weighted by their runs; None without any run. The
    interval tells how much depends on the seeds, not how far the settings are apart."""
    import numpy as np  # here, so that commands without sweeps start without it

    samples = tuple(filter(None, samples))
    if not samples:
        return None
    runs = sum(map(len, samples))
    parts = [(len(each) / runs, spread(np.array(each), statistic)) for each in samples]
    value = sum(weight * float(found.value) for weight, found in parts)
    if min(map(len, samples)) < LEAST_SEEDS:
        return Estimate(value)
    half = half_width_of_sum([(weight**2 * float(found.variance), found.freedom) for weight, found in parts])
    return Estimate(value, value - half, value + half)


class Spread(NamedTuple):
    """Statistics, their variances, and the degrees of freedom of these."""

    value: NDArray[np.float64]
    variance: NDArray[np.float64]
    freedom: int

    @property
    def half_width(self) -> NDArray[np.float64]:
        """Half of the width of the 95 % intervals."""
        return quantile(self.freedom) * self.variance**0.5


def spread(values: NDArray[np.float64], statistic: Statistic) -> Spread:
    """The statistic over the last axis, `[..., runs]`.

    The variance of the interquartile mean is that of the jackknife. As the statistic rests on half of the runs, half of
    the degrees of freedom count: with all of them the interval of 5 seeds holds the true value in 89 % only.
    """
    import numpy as np

    count = values.shape[-1]
    if statistic == "mean" or count < LEAST_SEEDS:
        variance = values.var(axis=-1, ddof=1) / count if count > 1 else np.full(values.shape[:-1], math.nan)
        return Spread(values.mean(axis=-1), variance, count - 1)
    without = np.stack([_middle(np.delete(values, run, axis=-1)) for run in range(count)])
    return Spread(_middle(values), (count - 1) * without.var(axis=0), max(2, count // 2))


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The interquartile mean over the last axis: the middle half counts, and the values at its borders in part."""
    import numpy as np

    count = values.shape[-1]
    places, cut = np.arange(count), count / 4
    weights = np.clip(np.minimum(places + 1, count - cut) - np.maximum(places, cut), 0, None)
    return np.sort(values, axis=-1) @ (weights / weights.sum())


@lru_cache(_REMEMBERED)
def improvement(ours: Sample, theirs: Sample) -> Estimate | None:
    """The probability that a run of ours is better than one of theirs; ties count half (Agarwal et al. 2021). None if
    either sample is empty.

    The interval is Newcombe's fifth (2006, https://doi.org/10.1002/sim.2324). It is missing if runs of equal settings
    would all be better than the others in more than 5 % of cases: then it can't be known.
    """
    value = _improves(ours, theirs)
    if value is None or 2 / math.comb(len(ours) + len(theirs), len(ours)) > 0.05:
        return value if value is None else Estimate(value)
    return Estimate(value, _lower(value, ours, theirs), 1 - _lower(1 - value, ours, theirs))


def _improves(ours: Sample, theirs: Sample) -> float | None:
    import numpy as np

    if not ours or not theirs:
        return None
    ordered = np.sort(theirs)
    halves = sum(int(np.searchsorted(ordered, ours, side).sum()) for side in ("left", "right"))
    return halves / (2 * len(ours) * len(theirs))


def _lower(found: float, ours: Sample, theirs: Sample) -> float:
    """The least probability from which the one found is 1.96 standard deviations away, by halving."""
    pairs, more = len(ours) * len(theirs), (len(ours) + len(theirs)) / 2 - 1
    low, high = 0.0, found
    for _ in range(40):
        p = (low + high) / 2
        variance = p * (1 - p) * (1 + more * ((1 - p) / (2 - p) + p / (1 + p))) / pairs
        low, high = (p, high) if found - p > _NORMAL * math.sqrt(variance) else (low, p)
    return high
