"""Statistics over the seeds of settings, with 95 % intervals for samples as small as a sweep has: Student's t for means
and interquartile means.

A bootstrap over so few seeds holds the true mean far less often than it says. docs/sweeps.md tells how often these do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from engine.runtime.students_t import quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SEEDS = 3
"""With fewer there is no interval: that of two is thirteen times as wide as they are apart."""
Statistic = Literal["mean", "iqm"]
"""`iqm`: the interquartile mean (Agarwal et al. 2021, arXiv:2108.13264)."""


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
