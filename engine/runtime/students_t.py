"""95 % intervals of a mean by Student's t distribution."""

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
    return _quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def _quantile(freedom: int) -> float:
    """The 97.5 % quantile; beyond the table by its expansion around the normal one (Abramowitz & Stegun 26.7.5)."""
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
