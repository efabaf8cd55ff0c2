"""95 % intervals by Student's t distribution: of a mean, and of a sum of independent parts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5 % quantiles of the distribution with 1 to 30 degrees of freedom."""
_NORMAL = 1.959964


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean; NaN for a single value, which says nothing about it."""
    if len(values) < 2:
        return math.nan
    return quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def half_width_of_sum(parts: Sequence[tuple[float, float]]) -> float:
    """Half the width of the 95 % interval of a sum or difference of independent estimates.

    Args:
        parts: of each, its variance and the degrees of freedom of that. Those of the sum are Welch's and
            Satterthwaite's (https://doi.org/10.2307/3002019).
    """
    variance = sum(each for each, _ in parts)
    if variance == 0:
        return 0.0
    return quantile(1 / sum((each / variance) ** 2 / freedom for each, freedom in parts)) * math.sqrt(variance)


def quantile(freedom: float) -> float:
    """The 97.5 % quantile; within the table interpolated, beyond it by its expansion around the normal one (Abramowitz
    & Stegun 26.7.5)."""
    if freedom < len(_QUANTILES):
        below = int(freedom)
        left, right = _QUANTILES[below - 1 : below + 1]
        return left + (right - left) * (1 / below - 1 / freedom) * below * (below + 1)
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
